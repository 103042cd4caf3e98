package handlers

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/tokens"
	"github.com/slotgate/slotgate/store"
)

const (
	// maxTokenPermissions is as many as a key may list.
	maxTokenPermissions = 256
	// maxPermissionBytes is longer than any class or command. What is longer is not quoted in an answer, which would be as long.
	maxPermissionBytes = 100
)

// tokenRequest is the body of POST /v1/token.
type tokenRequest struct {
	ttl         time.Duration
	permissions []string // nil = all of the key's
}

func parseToken(src []byte) (tokenRequest, error) {
	r := tokenRequest{ttl: tokens.DefaultTTL}
	err := parseObject(src, func(d *document, name []byte) bool {
		switch string(name) {
		case "ttl_s":
			r.ttl = d.tokenTTL()
		case "permissions":
			r.permissions = d.permissions()
		default:
			return false
		}
		return true
	}, func(*document) {})
	return r, err
}

func (d *document) tokenTTL() time.Duration {
	least, most := int64(tokens.MinTTL/time.Second), int64(tokens.MaxTTL/time.Second)
	n, ok := d.integer()
	if ok && (n < least || n > most) {
		d.wrong("must be " + strconv.FormatInt(least, 10) + " to " + strconv.FormatInt(most, 10) + " seconds")
		return tokens.DefaultTTL
	}
	return time.Duration(n) * time.Second
}

// permissions reads an allow-list and judges each entry.
func (d *document) permissions() []string {
	list := []string{}
	full := d.array(func() bool {
		if len(list) > maxTokenPermissions {
			d.skip()
			return d.broken == nil
		}
		text, ok := d.string()
		switch {
		case ok && len(text) > maxPermissionBytes:
			d.wrong("is no permission: it has more than " + strconv.Itoa(maxPermissionBytes) + " bytes")
		case ok:
			if _, err := acl.CompilePermissions([]string{string(text)}); err != nil {
				d.wrong(permissionDetail(err))
			}
		}
		list = append(list, string(text))
		return true
	})
	switch {
	case !full:
	case len(list) == 0:
		d.wrong("is empty; leave it out for all that the key may do")
	case len(list) > maxTokenPermissions:
		d.wrong("must have at most " + strconv.Itoa(maxTokenPermissions) + " entries")
	}
	return list
}

func permissionDetail(err error) string {
	if f, ok := errors.AsType[*acl.Fault](err); ok {
		return f.Detail
	}
	return "is no permission"
}

// tokenAnswer is the answer of POST /v1/token, its names as OAuth has them where it has some.
type tokenAnswer struct {
	Token       string    `json:"token"`
	Type        string    `json:"token_type"`
	ExpiresAt   time.Time `json:"expires_at"`
	ExpiresIn   int64     `json:"expires_in"`
	Permissions []string  `json:"permissions"`
}

// postToken is POST /v1/token.
func (a *API) postToken(r request) error {
	wanted, err := readToken(&r)
	if err != nil {
		return err
	}
	made, err := a.tokens.Issue(r.id, wanted.ttl, wanted.permissions)
	if err != nil {
		return tokenFault(err)
	}
	text, err := json.Marshal(tokenAnswer{
		Token: made.Token, Type: "Bearer", Permissions: made.Permissions,
		ExpiresAt: made.ExpiresAt, ExpiresIn: int64(made.ExpiresAt.Sub(made.IssuedAt) / time.Second),
	})
	if err != nil {
		return store.NewError(store.CodeInternal, "").WithCause(err)
	}
	return r.answer(r.reply().raw(string(text)))
}

// readToken reads the body, which may be absent.
func readToken(r *request) (tokenRequest, error) {
	if r.Request.ContentLength == 0 {
		return tokenRequest{ttl: tokens.DefaultTTL}, nil
	}
	src, err := readJSON(r.Request, r.id.Sizes.RequestMaxBytes)
	if err != nil {
		return tokenRequest{}, err
	}
	return parseToken(src)
}

func tokenFault(err error) error {
	wider, ok := errors.AsType[*tokens.WiderError](err)
	switch {
	case ok:
		return store.NewError(store.CodeForbidden, "the key may not do "+strings.Join(wider.Entries, ", ")+"; ask for a part of what it may")
	case errors.Is(err, tokens.ErrFromToken):
		return store.NewError(store.CodeForbidden, "a token is not exchanged for another; send the app key")
	case errors.Is(err, tokens.ErrTooLong):
		return store.Invalid("/permissions", "are too many for one token, which has at most "+strconv.Itoa(tokens.MaxBytes)+" bytes; ask for fewer, or for classes")
	}
	return store.NewError(store.CodeInternal, "").WithCause(err)
}

// jwksLife is how long others may keep the set. The next key is in it before it signs (deploy/operate.md).
var jwksLife = []string{"public, max-age=300"}

// jwks is GET /.well-known/jwks.json: the keys by which others can verify the gateways' tokens.
func (a *API) jwks(c *gin.Context) {
	h := c.Writer.Header()
	h["Cache-Control"] = jwksLife
	h["Content-Type"] = jsonType
	c.Writer.WriteHeader(http.StatusOK)
	_, _ = c.Writer.Write(a.keySet) // the client may be gone
}
