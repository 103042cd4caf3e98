// Package openapi is the contract of slotgate: one hand-written OpenAPI 3.0.3 document, embedded and served. It imports nothing of ours.
package openapi
