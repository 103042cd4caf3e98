package middleware

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/slotgate/slotgate/store"
)

// Attributes of the gateway's own.
const (
	attrApp       = attribute.Key("slotgate.app")
	attrCode      = attribute.Key("slotgate.code") // of the problem
	attrRequestID = attribute.Key("slotgate.request_id")
	attrCluster   = attribute.Key("slotgate.cluster")
	attrReplica   = attribute.Key("slotgate.replica") // the node is one; absent of a primary
)

const headerTraceparent = "Traceparent" // as net/textproto writes it

// Trace makes a span of each request and, if it is sampled, one of each command or chunk of commands that it sends to Redis. It goes on
// with the trace of the request's traceparent and tracestate; where there is none, or a malformed one, a new trace begins.
//
// A span holds what Event holds, so no key, value, token, path or query: url.path, which the conventions ask for, is left out because
// keys are in it. It must stand outside Events, whose event it reads at the end.
func Trace(tracer trace.Tracer, clock Clock) gin.HandlerFunc {
	clock = clock.orReal()
	return func(c *gin.Context) {
		r := of(c)
		t := &r.watch().traced
		t.begin(tracer, c, r.started(clock))
		defer func() { t.end(&r.event, c.Request) }()
		c.Next()
	}
}

// traced is a request's span.
type traced struct {
	tracer trace.Tracer
	ctx    context.Context // parent of the spans of commands
	span   trace.Span      // nil: not traced
}

func (t *traced) begin(tracer trace.Tracer, c *gin.Context, start time.Time) {
	ctx := c.Request.Context()
	if len(c.Request.Header[headerTraceparent]) == 1 { // more than one is malformed
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(c.Request.Header))
	}
	name, method := c.Request.Method, c.Request.Method
	if knownMethod(method) != method {
		name, method = "HTTP", "_OTHER" // the conventions' words
	}
	attrs := []attribute.KeyValue{semconv.HTTPRequestMethodKey.String(method)}
	if route := c.FullPath(); route != "" {
		name += " " + route
		attrs = append(attrs, semconv.HTTPRoute(route))
	}
	t.tracer = tracer
	t.ctx, t.span = tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(start), trace.WithAttributes(attrs...))
}

// end closes the request's span with what has become of it.
func (t *traced) end(e *Event, req *http.Request) {
	defer t.span.End(trace.WithTimestamp(e.Start.Add(e.Duration)))
	if !t.sampled() {
		return
	}
	scheme := "http"
	if req.TLS != nil {
		scheme = "https"
	}
	t.span.SetAttributes(
		semconv.URLScheme(scheme),
		semconv.NetworkProtocolVersion(protocolVersion(req)),
		semconv.HTTPResponseStatusCode(e.Status),
		semconv.HTTPRequestBodySize(int(e.BytesIn)),
		semconv.HTTPResponseBodySize(int(e.BytesOut)),
		attrRequestID.String(e.RequestID),
	)
	if e.Identity != nil {
		t.span.SetAttributes(attrApp.String(e.Identity.App.ID))
	}
	if e.Code != "" {
		t.span.SetAttributes(attrCode.String(string(e.Code)))
	}
	if e.Status >= http.StatusInternalServerError { // what is the caller's mistake is no error of the server's span
		t.span.SetStatus(codes.Error, "")
		t.span.SetAttributes(semconv.ErrorTypeKey.String(cmp.Or(string(e.Code), strconv.Itoa(e.Status))))
	}
}

func protocolVersion(req *http.Request) string {
	if req.ProtoMajor == 1 {
		return fmt.Sprint("1.", req.ProtoMinor)
	}
	return fmt.Sprint(req.ProtoMajor)
}

// command makes the span of a command, or of a chunk of a batch, that is over.
func (t *traced) command(s store.Sent) {
	name := s.Command
	attrs := []attribute.KeyValue{semconv.DBSystemNameRedis, attrCluster.String(s.Cluster)}
	if host, port, err := net.SplitHostPort(s.Node); err == nil {
		n, _ := strconv.Atoi(port)
		attrs = append(attrs, semconv.ServerAddress(host), semconv.ServerPort(n))
	}
	if s.Replica {
		attrs = append(attrs, attrReplica.Bool(true))
	}
	if s.Commands > 1 {
		name = "PIPELINE " + name
		attrs = append(attrs, semconv.DBOperationBatchSize(s.Commands))
	}
	attrs = append(attrs, semconv.DBOperationName(name))
	_, span := t.tracer.Start(t.ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(s.Start), trace.WithAttributes(attrs...))
	if s.Code != "" {
		span.SetStatus(codes.Error, "")
		reason := string(s.Code)
		if s.RedisError != "" {
			reason = s.RedisError
			span.SetAttributes(semconv.DBResponseStatusCode(s.RedisError))
		}
		span.SetAttributes(semconv.ErrorTypeKey.String(reason))
	}
	span.End(trace.WithTimestamp(s.End))
}

func (t *traced) sampled() bool { return t.span != nil && t.span.IsRecording() }

// traceID is that of the event's request, "" when it is not traced.
func (e *Event) traceID() string {
	if e.watch == nil || e.watch.span == nil {
		return ""
	}
	return e.watch.span.SpanContext().TraceID().String()
}

// sampled says whether the request's spans can be looked up.
func (e *Event) sampled() bool {
	return e.watch != nil && e.watch.span != nil && e.watch.span.SpanContext().IsSampled()
}
