package handlers

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/slotgate/slotgate/store"
)

func withBody(body io.Reader, length int64, contentType string) *http.Request {
	r := httptest.NewRequest(http.MethodPut, "/", body)
	r.ContentLength = length
	r.Header.Set("Content-Type", contentType)
	return r
}

func TestBodiesAreRead(t *testing.T) {
	for _, contentType := range []string{
		"application/json", "application/json; charset=utf-8", "application/json;charset=UTF-8", "APPLICATION/JSON", `application/json; charset="utf-8"; x=y`,
	} {
		for _, length := range []int64{2, -1} {
			body, err := readJSON(withBody(iotest.OneByteReader(strings.NewReader("{}")), length, contentType), 2)
			if err != nil || string(body) != "{}" {
				t.Errorf("%s, length %d: %q, %v", contentType, length, body, err)
			}
		}
	}
}

func TestBodiesAreRefused(t *testing.T) {
	broken := errors.New("broken")
	for why, row := range map[string]struct {
		r       *http.Request
		code    store.Code
		pointer string
	}{
		"declared too long":       {withBody(strings.NewReader("{   }"), 5, "application/json"), store.CodePayloadTooLarge, "body"},
		"too long, not declared":  {withBody(strings.NewReader("{   }"), -1, "application/json"), store.CodePayloadTooLarge, "body"},
		"too long for the server": {withBody(http.MaxBytesReader(nil, io.NopCloser(strings.NewReader("{  }")), 3), -1, "application/json"), store.CodePayloadTooLarge, "body"},
		"shorter than declared":   {withBody(strings.NewReader("{}"), 4, "application/json"), store.CodeInvalidRequest, "body"},
		"nothing, declared":       {withBody(strings.NewReader(""), 4, "application/json"), store.CodeInvalidRequest, "body"},
		"broken off":              {withBody(iotest.ErrReader(io.ErrUnexpectedEOF), -1, "application/json"), store.CodeInvalidRequest, "body"},
		"a broken connection":     {withBody(iotest.ErrReader(broken), 4, "application/json"), store.CodeInvalidRequest, "body"},
		"refused by middleware":   {withBody(iotest.ErrReader(store.Invalid("body", "why")), 4, "application/json"), store.CodeValidationFailed, "body"},
		"empty":                   {withBody(strings.NewReader(""), 0, "application/json"), store.CodeInvalidRequest, "body"},
		"empty, not declared":     {withBody(strings.NewReader(""), -1, "application/json"), store.CodeInvalidRequest, "body"},
		"another type":            {withBody(strings.NewReader("{}"), 2, "text/json"), store.CodeUnsupportedMediaType, "header:Content-Type"},
		"another charset":         {withBody(strings.NewReader("{}"), 2, "application/json; charset=utf-16"), store.CodeUnsupportedMediaType, "header:Content-Type"},
		"two types":               {withBody(strings.NewReader("{}"), 2, "application/json, text/plain"), store.CodeUnsupportedMediaType, "header:Content-Type"},
		"no type":                 {withBody(strings.NewReader("{}"), 2, ""), store.CodeUnsupportedMediaType, "header:Content-Type"},
	} {
		t.Run(why, func(t *testing.T) {
			_, err := readJSON(row.r, 4)
			wantFault(t, err, row.code, row.pointer)
		})
	}
}

func TestOutcomesNameKeysAsTheyWereSent(t *testing.T) {
	e := store.NewError(store.CodeBatchIncomplete, "")
	e.Items = []store.ItemOutcome{{Key: "a\xff", Outcome: store.Applied}, {Key: "b", Outcome: store.Unknown}}
	if err := asSent(e, keyUTF8); err != error(e) || e.Items[1].Key != "b" {
		t.Errorf("%+v", e.Items)
	}
	if err := asSent(e, keyBase64URL); err != error(e) || e.Items[0].Key != "Yf8" || e.Items[1].Key != "Yg" {
		t.Errorf("%+v", e.Items)
	}
}
