package localcluster

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// tempPrefix begins the names of the temporary folders; Sweep removes no folder without it.
const tempPrefix = "slotgate-run-"

// Folder is a folder of files that live as long as the program: a temporary one, removed by Close or, should the program be
// killed, by a later Sweep; or a given one, which stays. A small record beside the system's temporary files says whose it is
// and which servers run in it. One running program at a time uses a folder.
type Folder struct {
	path string

	mu     sync.Mutex
	record string // the record's path
	body   recordBody
}

type recordBody struct {
	Owner     recordedProcess   `json:"owner"`
	Folder    string            `json:"folder"`
	Temporary bool              `json:"temporary"` // the folder goes too
	Servers   []recordedProcess `json:"servers"`
}

type recordedProcess struct {
	PID     int    `json:"pid"`
	Started string `json:"started"` // process numbers come around again
}

func describe(pid int) recordedProcess { return recordedProcess{PID: pid, Started: startTime(pid)} }

func (p recordedProcess) alive() bool { return p.Started != "" && startTime(p.PID) == p.Started }

// recordFolder makes the folder of this user's records. It lies in a folder all users can write to, and Sweep deletes what
// the records say: so nobody else may own or write it.
func recordFolder() (string, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("slotgate-dev-%d", os.Getuid()))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("making the folder of running clusters: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", fmt.Errorf("checking the folder of running clusters: %w", err)
	}
	if !info.IsDir() || !ownedByMe(info) || info.Mode().Perm()&0o022 != 0 {
		return "", fmt.Errorf("%s must be a folder that only you can write to; remove it", dir)
	}
	return dir, nil
}

// NewFolder makes the folder, with a name of its own below the system's temporary one if path is empty.
func NewFolder(path string) (*Folder, error) {
	records, err := recordFolder()
	if err != nil {
		return nil, err
	}
	temporary := path == ""
	if temporary {
		path = filepath.Join(os.TempDir(), tempPrefix+rand.Text())
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, fmt.Errorf("making the folder: %w", err)
	}
	f := &Folder{
		path: path, record: filepath.Join(records, fmt.Sprintf("%d-%s.json", os.Getpid(), rand.Text())),
		body: recordBody{Owner: describe(os.Getpid()), Folder: path, Temporary: temporary},
	}
	if err := f.refuseShared(records); err != nil {
		return nil, err
	}
	// The record comes first: a program killed in between leaves no folder that nobody knows of.
	if err := errors.Join(f.writeFirst(), os.MkdirAll(path, 0o700)); err != nil {
		return nil, errors.Join(fmt.Errorf("making the folder: %w", err), f.Close())
	}
	return f, nil
}

// writeFirst writes the record, again if another program has meanwhile removed the folder of records, empty as it was.
func (f *Folder) writeFirst() error {
	for tries := 1; ; tries++ {
		err := f.write()
		if !errors.Is(err, fs.ErrNotExist) || tries == 10 {
			return err
		}
		if _, err := recordFolder(); err != nil {
			return err
		}
	}
}

// Path returns the folder's absolute path.
func (f *Folder) Path() string { return f.path }

// Close removes the folder if it is temporary.
func (f *Folder) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var err error
	if f.body.Temporary {
		err = os.RemoveAll(f.path)
	}
	if gone := os.Remove(f.record); !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	_ = os.Remove(filepath.Dir(f.record)) // fails as long as there are others
	return err
}

func (f *Folder) refuseShared(records string) error {
	others, err := readRecords(records)
	for _, other := range others {
		if other.body.Folder == f.path && other.body.Owner.alive() {
			return fmt.Errorf("%s is in use by process %d", f.path, other.body.Owner.PID)
		}
	}
	return err
}

// write replaces the file in one step, so that a program killed meanwhile leaves a whole one.
func (f *Folder) write() error {
	raw, err := json.Marshal(f.body)
	if err != nil {
		return fmt.Errorf("recording the cluster: %w", err)
	}
	next := f.record + ".new"
	if err := os.WriteFile(next, raw, 0o600); err != nil {
		return fmt.Errorf("recording the cluster: %w", err)
	}
	return os.Rename(next, f.record)
}

// add notes a started server. Servers that have ended meanwhile stay noted; that does no harm.
func (f *Folder) add(pid int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.body.Servers = append(f.body.Servers, describe(pid))
	return f.write()
}

func readRecords(dir string) ([]*Folder, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var folders []*Folder
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		f := &Folder{record: path}
		if err != nil || json.Unmarshal(raw, &f.body) != nil {
			continue // removed meanwhile
		}
		f.path = f.body.Folder
		folders = append(folders, f)
	}
	return folders, nil
}

// Sweep clears away what programs that were killed have left: their servers, their temporary folders and their records. It
// touches nothing of a running program, and no process that is not a server in a recorded folder. Start calls it.
func Sweep() error {
	dir, err := recordFolder()
	if err != nil {
		return err
	}
	records, err := readRecords(dir)
	if err != nil {
		return err
	}
	defer os.Remove(dir) // fails as long as there are records
	var errs []error
	for _, f := range records {
		if !f.body.Owner.alive() {
			errs = append(errs, f.sweep())
		}
	}
	return errors.Join(errs...)
}

func (f *Folder) sweep() error {
	for _, p := range f.body.Servers {
		if err := p.killServer(f.path); err != nil {
			return err
		}
	}
	if !strings.HasPrefix(filepath.Base(f.path), tempPrefix) {
		f.body.Temporary = false
	}
	_ = os.Remove(f.record + ".new")
	return f.Close()
}

// killServer kills a recorded server if the process of that number still is one: started then, from that folder.
func (p recordedProcess) killServer(folder string) error {
	if !p.alive() || !strings.Contains(commandLine(p.PID), folder+string(filepath.Separator)) {
		return nil
	}
	process, err := os.FindProcess(p.PID)
	if err != nil {
		return nil
	}
	if err := process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing the left-over server %d: %w", p.PID, err)
	}
	for deadline := time.Now().Add(5 * time.Second); p.alive(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("the left-over server %d does not end", p.PID)
		}
	}
	return nil
}
