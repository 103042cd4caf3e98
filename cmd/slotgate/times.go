package main

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// parseDuration is time.ParseDuration with days, which people count expiries in: 30d.
func parseDuration(text string) (time.Duration, error) {
	days, ok := strings.CutSuffix(text, "d")
	if !ok {
		return time.ParseDuration(text)
	}
	n, err := strconv.Atoi(days)
	if err != nil || n < 0 || n > 100*366 {
		return 0, errors.New("not a number of days")
	}
	return time.Duration(n) * 24 * time.Hour, nil
}

// parseExpiry reads a moment: RFC 3339, a time from now, or never (nil).
func parseExpiry(text string, now time.Time) (*time.Time, error) {
	if text == "never" {
		return nil, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return &at, nil
	}
	d, err := parseDuration(text)
	if err != nil || d <= 0 {
		return nil, errors.New("write a time such as 2027-01-31T00:00:00Z, a time from now such as 90d, or never")
	}
	at := now.Add(d).UTC().Truncate(time.Second)
	return &at, nil
}

// showTime writes a moment for a table, - for none.
func showTime(t *time.Time) string {
	if t == nil || t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
