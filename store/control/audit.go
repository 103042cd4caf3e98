package control

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/slotgate/slotgate/acl"
)

// Audit reads the newest entries, at most n, the oldest of them first. An entry that cannot be read is left out and logged.
func (r *Redis) Audit(ctx context.Context, n int) ([]acl.AuditEntry, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if n < 1 {
		return nil, nil
	}
	lines, err := r.client.LRange(ctx, auditKey, 0, int64(n)-1).Result()
	if err != nil {
		return nil, fmt.Errorf("reading the audit from Redis: %w", err)
	}
	entries := make([]acl.AuditEntry, 0, len(lines))
	for _, line := range slices.Backward(lines) {
		var e acl.AuditEntry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			r.log.WarnContext(ctx, "an entry of the audit is damaged and was left out", "error", err)
			continue
		}
		entries = append(entries, e)
	}
	return entries, nil
}
