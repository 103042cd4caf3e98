package tokens

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/golang-jwt/jwt/v5"
)

// errClaim says that a header or a claim is there and is not what it must be.
var errClaim = errors.New("has the wrong type")

// object is a JSON object of a token, taken apart. It is read strictly: a member twice, at any depth, is an error, since two readers
// might each believe another one; so is text that is not UTF-8.
type object map[string]jsontext.Value

func parseObject(text []byte) (object, error) {
	var o object
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, err
	}
	if o == nil { // null
		return nil, errClaim
	}
	return o, nil
}

// text reads a string; ok is false when there is none.
func (o object) text(name string) (s string, ok bool, err error) {
	value, ok := o[name]
	if !ok {
		return "", false, nil
	}
	if value.Kind() != '"' {
		return "", true, fmt.Errorf("%s %w", name, errClaim)
	}
	return s, true, json.Unmarshal(value, &s)
}

// texts reads a list of strings.
func (o object) texts(name string) (list []string, ok bool, err error) {
	value, ok := o[name]
	if !ok {
		return nil, false, nil
	}
	if value.Kind() != '[' {
		return nil, true, fmt.Errorf("%s %w", name, errClaim)
	}
	if err := json.Unmarshal(value, &list); err != nil {
		return nil, true, fmt.Errorf("%s %w", name, errClaim)
	}
	return list, true, nil
}

// words reads a list of strings, or a string of words as OAuth writes its scope.
func (o object) words(name string) (list []string, ok bool, err error) {
	if o[name].Kind() == '"' {
		s, ok, err := o.text(name)
		return strings.Fields(s), ok, err
	}
	return o.texts(name)
}

// lastSecond is the end of the year 9999: what is later is a mistake of somebody's units.
const lastSecond = 253402300799

// date reads seconds since 1970. A number in quotes is none, quotes being no digits, though encoding/json's Number would take it.
func (o object) date(name string) (*jwt.NumericDate, error) {
	value, ok := o[name]
	if !ok {
		return nil, nil
	}
	seconds, err := strconv.ParseFloat(string(value), 64)
	if err != nil || seconds < 0 || seconds > lastSecond {
		return nil, fmt.Errorf("%s %w", name, errClaim)
	}
	whole, part := math.Modf(seconds)
	return &jwt.NumericDate{Time: time.Unix(int64(whole), int64(part*1e9))}, nil
}

// claims are the payload of a token, of any issuer. They implement jwt.Claims.
type claims struct{ object }

// UnmarshalJSON is called by the parser.
func (c *claims) UnmarshalJSON(text []byte) (err error) {
	c.object, err = parseObject(text)
	return err
}

// GetExpirationTime implements jwt.Claims.
func (c *claims) GetExpirationTime() (*jwt.NumericDate, error) { return c.date("exp") }

// GetIssuedAt implements jwt.Claims.
func (c *claims) GetIssuedAt() (*jwt.NumericDate, error) { return c.date("iat") }

// GetNotBefore implements jwt.Claims.
func (c *claims) GetNotBefore() (*jwt.NumericDate, error) { return c.date("nbf") }

// GetIssuer implements jwt.Claims.
func (c *claims) GetIssuer() (string, error) {
	s, _, err := c.text("iss")
	return s, err
}

// GetSubject implements jwt.Claims.
func (c *claims) GetSubject() (string, error) {
	s, _, err := c.text("sub")
	return s, err
}

// GetAudience implements jwt.Claims. One audience may be written without a list.
func (c *claims) GetAudience() (jwt.ClaimStrings, error) {
	if c.object["aud"].Kind() == '"' {
		s, _, err := c.text("aud")
		return jwt.ClaimStrings{s}, err
	}
	list, _, err := c.texts("aud")
	return list, err
}

// hint is what a token says of itself, not verified: good for finding the key that verifies it, and for nothing else.
type hint struct{ issuer, key string }

// maxKeyID is longer than any id of a key; thumbprints have 43 bytes.
const maxKeyID = 256

// peek reads the hint, and refuses what no issuer of ours would write. Where the header says to find a key (jku, x5u, jwk, x5c) is
// not looked at: an attacker wrote it.
func peek(token string) (hint, error) {
	if len(token) > MaxBytes || !tokenAlphabet(token) {
		return hint{}, Malformed
	}
	head, rest, _ := strings.Cut(token, ".")
	body, _, _ := strings.Cut(rest, ".")
	header, err := segment(head)
	if err != nil {
		return hint{}, Malformed
	}
	var h hint
	_, critical := header["crit"] // extensions that must be understood, and there are none that we do
	if h.key, _, err = header.text("kid"); err != nil || critical || len(h.key) > maxKeyID {
		return hint{}, Malformed
	}
	payload, err := segment(body)
	if err != nil {
		return hint{}, Malformed
	}
	if h.issuer, _, err = payload.text("iss"); err != nil {
		return hint{}, Malformed
	}
	return h, nil
}

func segment(encoded string) (object, error) {
	text, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return nil, err
	}
	return parseObject(text)
}

// tokenAlphabet is checked because base64's decoder passes over line ends, so that one token could be written in many ways.
func tokenAlphabet(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.') {
			return false
		}
	}
	return true
}
