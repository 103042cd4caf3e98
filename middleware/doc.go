// Package middleware guards the API: one guard per file, each a factory with explicit arguments that returns a gin.HandlerFunc.
// They give a request its id, find out who calls, and bound what the call may cost (requests, bytes, time) before a handler runs;
// around that, one event per request is turned into a log line and metrics, and one renderer turns every error into
// application/problem+json.
//
// A guard refuses by c.Error and c.Abort, never by writing; so does a handler. Guards know nothing of Redis and decide nothing about
// permissions: store checks those for every command, once. Chain builds the documented order. No guard starts a goroutine.
package middleware
