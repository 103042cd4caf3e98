package acl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

const (
	// auditSuffix names the audit of a file, which lies beside it.
	auditSuffix = ".audit.jsonl"
	// maxAuditRead bounds what Audit reads from the end of it: more than MaxAudit entries of usual size.
	maxAuditRead = 16 << 20
)

// record appends what was prepared to the audit beside the file, one JSON object a line. The line is on the disk before the change is
// given to anybody.
func (f *File) record(set *Set, c Change) error {
	var lines []byte
	for _, part := range c.Parts() {
		entry, err := part.Record(storedBefore(set, part))
		if err != nil {
			return err
		}
		entry.Prepared = true
		line, err := json.Marshal(entry)
		if err != nil {
			return err
		}
		lines = append(append(lines, line...), '\n')
	}
	if err := appendTo(f.path+auditSuffix, lines); err != nil {
		return fmt.Errorf("the audit cannot be written, so nothing is changed: %w", err)
	}
	return nil
}

// storedBefore gives the stored entry that a change is about; nil without a type when there is none.
func storedBefore(set *Set, c Change) any {
	switch {
	case c.App != nil && set.Apps[c.App.ID] != nil:
		return set.Apps[c.App.ID]
	case c.Key != nil && set.Keys[c.Key.ID] != nil:
		return set.Keys[c.Key.ID]
	case c.Cluster != nil && set.Clusters[c.Cluster.Name] != nil:
		return set.Clusters[c.Cluster.Name]
	}
	return nil
}

// appendTo writes all at once, so that two commands at the same time do not mix their lines. A line that was cut off before its end, by
// a full disk, is ended first: what is written behind it would be a part of it, and nobody would see either.
func appendTo(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	cut, err := cutOff(file)
	if cut {
		data = append([]byte{'\n'}, data...)
	}
	if err == nil {
		_, err = file.Write(data)
	}
	return errors.Join(err, file.Sync(), file.Close())
}

// cutOff says whether the last line of a file has no end.
func cutOff(file *os.File) (bool, error) {
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return false, err
	}
	var last [1]byte
	_, err = file.ReadAt(last[:], info.Size()-1)
	return err == nil && last[0] != '\n', err
}

// Audit reads the end of the audit. No audit yet is an empty one; a line that is no entry, such as one cut off by a full disk, is left out.
func (f *File) Audit(_ context.Context, n int) ([]AuditEntry, error) {
	data, err := readEnd(f.path+auditSuffix, maxAuditRead)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the audit: %w", err)
	}
	var entries []AuditEntry
	lines := bytes.Split(data, []byte("\n"))
	for _, line := range slices.Backward(lines) {
		var e AuditEntry
		if len(entries) < n && json.Unmarshal(line, &e) == nil {
			entries = append(entries, e)
		}
	}
	slices.Reverse(entries)
	return entries, nil
}

func readEnd(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > most {
		if _, err := file.Seek(-most, io.SeekEnd); err != nil {
			return nil, err
		}
	}
	return io.ReadAll(file)
}
