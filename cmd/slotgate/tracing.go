package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// tracing makes and sends spans. It is set up by OpenTelemetry's own variables, so that it is told of like every other service; the
// settings of the gateway have nothing about it. nil is tracing that is off.
type tracing struct{ provider *sdktrace.TracerProvider }

// traceFlush bounds the sending of the last spans when the gateway stops.
const traceFlush = 5 * time.Second

// newTracing reads the variables. It is off, nil, unless one says where spans go, or that they do: the standard's own default would send
// them to a port of this host at which usually nobody listens. Errors: a variable that asks for what there is not.
func newTracing(log *slog.Logger) (*tracing, error) {
	on, err := wantsTracing(os.Getenv) // as the libraries do, which take no other source
	if !on || err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), traceFlush)
	defer cancel()
	exporter, err := otlptrace.New(ctx, otlptracehttp.NewClient())
	if err != nil {
		return nil, fmt.Errorf("setting up the export of traces: %w", err)
	}
	b := readBuildInfo()
	about, err := resource.New(ctx, resource.WithHost(), resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName("slotgate"), semconv.ServiceVersion(b.Version)),
		resource.WithFromEnv()) // last, so it wins
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reading OTEL_RESOURCE_ATTRIBUTES: %w", err), exporter.Shutdown(ctx))
	}
	// The library has one place for errors in a process, and would write text to stderr where the log is.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("tracing", "error", err) }))
	return &tracing{sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))}, nil
}

// wantsTracing says whether the variables switch tracing on, and refuses what the gateway does not have.
func wantsTracing(getenv func(string) string) (bool, error) {
	get := func(names ...string) (value, name string) {
		for _, name = range names { // the closer one first
			if value = strings.ToLower(strings.TrimSpace(getenv(name))); value != "" {
				break
			}
		}
		return value, name
	}
	const exporter = "OTEL_TRACES_EXPORTER"
	if off, _ := get("OTEL_SDK_DISABLED"); off == "true" {
		return false, nil
	}
	endpoint, _ := get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
	switch kind, _ := get(exporter); {
	case kind == "none", kind == "" && endpoint == "":
		return false, nil
	case kind != "" && kind != "otlp":
		return false, fmt.Errorf("%s=%s is not supported; write otlp or none", exporter, kind)
	}
	if protocol, name := get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		return false, fmt.Errorf("%s=%s is not supported; write http/protobuf, which collectors take at port 4318", name, protocol)
	}
	samplers := []string{"", "always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio"}
	if sampler, name := get("OTEL_TRACES_SAMPLER"); !slices.Contains(samplers, sampler) {
		return false, fmt.Errorf("%s=%s is not supported; write one of%s", name, sampler, strings.Join(samplers, " "))
	}
	return true, nil
}

// tracer is nil when tracing is off.
func (t *tracing) tracer() trace.Tracer {
	if t == nil {
		return nil
	}
	return t.provider.Tracer("github.com/slotgate/slotgate")
}

// close sends the last spans. That it fails is no failure of the gateway.
func (t *tracing) close(log *slog.Logger) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), traceFlush)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		log.Warn("sending the last traces", "error", err)
	}
}
