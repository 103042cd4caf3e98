package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// mutant is one seeded bug.
type mutant struct {
	Name string // what the bug does
	File string // from the root of the module
	Old  string // a line of the file, without its indentation; there must be one such line
	New  string // what stands there instead
	Test string // "./package TestName", the test that must fail
	Why  string // what it would mean for users
}

// load reads the list and holds it against the code under root: a list that names lines which are gone says nothing.
func load(path, root string) ([]mutant, error) {
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return nil, err
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	var list []mutant
	if err := d.Decode(&list); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var faults []error
	names := map[string]bool{}
	for _, m := range list {
		if names[m.Name] {
			faults = append(faults, fmt.Errorf("two mutants are called %q", m.Name))
		}
		names[m.Name] = true
		if err := m.check(root); err != nil {
			faults = append(faults, fmt.Errorf("mutant %q: %w", m.Name, err))
		}
	}
	return list, errors.Join(faults...)
}

func (m mutant) check(root string) error {
	for _, field := range []string{m.Name, m.File, m.Old, m.New, m.Test, m.Why} {
		if field == "" || strings.Contains(field, "\n") {
			return errors.New("every field must be one line")
		}
	}
	if folder, name := m.target(); folder == "" || name == "" {
		return fmt.Errorf("test %q is not of the form ./package TestName", m.Test)
	}
	_, err := m.mutate(root)
	return err
}

// target is the folder of the test's package and the test's name.
func (m mutant) target() (folder, name string) {
	folder, name, _ = strings.Cut(m.Test, " ")
	if !strings.HasPrefix(folder, "./") || !strings.HasPrefix(name, "Test") {
		return "", ""
	}
	return folder, name
}

// mutate returns the file with the bug in it.
func (m mutant) mutate(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(text), "\n")
	found := 0
	for i, line := range lines {
		if bare := strings.TrimLeft(line, " \t"); bare == m.Old {
			lines[i] = line[:len(line)-len(bare)] + m.New
			found++
		}
	}
	if found != 1 {
		return nil, fmt.Errorf("%s has %d lines %q, not one: bring deploy/mutants/mutants.yaml up to date", m.File, found, m.Old)
	}
	return []byte(strings.Join(lines, "\n")), nil
}
