package main

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The shape of Config, read by reflection: every layer, every printer and every check speaks of a setting by its
// path ("redis.pool_size", "clusters.default.addrs"), so a new field needs no code but itself and its default.

// setting is one value of a Config.
type setting struct {
	Path  string
	Value reflect.Value // not addressable; use Config.set
}

// settings lists every value of the Config in the order of the struct; those of a map by name.
func (c Config) settings() []setting {
	var out []setting
	collect(&out, "", reflect.ValueOf(c))
	return out
}

func collect(out *[]setting, path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			collect(out, join(path, yamlName(v.Type().Field(i))), v.Field(i))
		}
	case reflect.Map:
		names := v.MapKeys()
		slices.SortFunc(names, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, name := range names {
			collect(out, join(path, name.String()), v.MapIndex(name))
		}
	default:
		*out = append(*out, setting{Path: path, Value: v})
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func yamlName(f reflect.StructField) string { return f.Tag.Get("yaml") }

// fieldNamed finds the field of a struct type by its yaml name.
func fieldNamed(t reflect.Type, name string) (reflect.StructField, bool) {
	for f := range t.Fields() {
		if yamlName(f) == name {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

func fieldNames(t reflect.Type) []string {
	var names []string
	for f := range t.Fields() {
		names = append(names, yamlName(f))
	}
	return names
}

// clusterName is what may stand under clusters: and in an app's cluster.
var clusterName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// set writes the setting at path; text is one value, or the elements of a list. The error does not name the path.
func (c *Config) set(path string, text ...string) error {
	return assign(reflect.ValueOf(c).Elem(), strings.Split(path, "."), text)
}

func assign(v reflect.Value, steps, text []string) error {
	if len(steps) == 0 {
		return setValue(v, text)
	}
	switch v.Kind() {
	case reflect.Struct:
		f, ok := fieldNamed(v.Type(), steps[0])
		if !ok {
			return unknownField(steps[0], fieldNames(v.Type()))
		}
		return assign(v.FieldByIndex(f.Index), steps[1:], text)
	case reflect.Map:
		return assignEntry(v, steps, text)
	}
	return fmt.Errorf("is a value and has no field %s", steps[0])
}

// assignEntry sets inside one entry of a map, which appears if it was not there.
func assignEntry(v reflect.Value, steps, text []string) error {
	name := reflect.ValueOf(steps[0])
	if !clusterName.MatchString(steps[0]) {
		return fmt.Errorf("%q is not a name; write lower case letters, digits, _ and -", steps[0])
	}
	entry := reflect.New(v.Type().Elem()).Elem()
	if old := v.MapIndex(name); old.IsValid() {
		entry.Set(old)
	}
	if err := assign(entry, steps[1:], text); err != nil {
		return err
	}
	if v.IsNil() {
		v.Set(reflect.MakeMap(v.Type()))
	}
	v.SetMapIndex(name, entry)
	return nil
}

func unknownField(name string, known []string) error {
	if near := nearest(name, known); near != "" {
		return fmt.Errorf("is no setting; did you mean %s?", near)
	}
	return fmt.Errorf("is no setting; there are %s", strings.Join(known, ", "))
}

// setValue parses text by the type of v.
func setValue(v reflect.Value, text []string) error {
	if v.Kind() == reflect.Slice {
		v.Set(reflect.ValueOf(text))
		return nil
	}
	if len(text) != 1 {
		return errors.New("takes one value, not a list")
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text[0])
	case reflect.Bool:
		b, err := strconv.ParseBool(text[0])
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text[0])
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text[0], 10, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("%q is not a whole number; write digits only, the unit is in the setting's name", text[0])
		}
		v.SetInt(n)
	case reflect.Float64:
		n, err := strconv.ParseFloat(text[0], 64)
		if err != nil {
			return fmt.Errorf("%q is not a number; write for example 0.05, the unit is in the setting's name", text[0])
		}
		v.SetFloat(n)
	default:
		return errors.New("is a group of settings, not a value")
	}
	return nil
}

// isList tells how the text of a flag or variable for path is taken: split at commas or whole.
func (c Config) isList(path string) bool {
	t := reflect.TypeOf(c)
	for step := range strings.SplitSeq(path, ".") {
		switch t.Kind() {
		case reflect.Struct:
			f, ok := fieldNamed(t, step)
			if !ok {
				return false
			}
			t = f.Type
		case reflect.Map:
			t = t.Elem()
		default:
			return false
		}
	}
	return t.Kind() == reflect.Slice
}

// setText is set for flags and variables, where a list is written with commas.
func (c *Config) setText(path, text string) error {
	if !c.isList(path) {
		return c.set(path, text)
	}
	list := []string{}
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return c.set(path, list...)
}
