package main

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// The comments in config.go are the documentation of the settings; this file reads them from the embedded source.
// A struct tag would say it a second time and could not be wrapped.
//
//go:embed config.go
var configSource string

// fieldDocs maps "Type.Field" to the field's comment, as one line.
var fieldDocs = sync.OnceValue(func() map[string]string {
	docs := map[string]string{}
	file, err := parser.ParseFile(token.NewFileSet(), "config.go", configSource, parser.ParseComments)
	if err != nil {
		return docs // cannot be: this program was compiled from it
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if st, ok := spec.Type.(*ast.StructType); ok {
			for _, f := range st.Fields.List {
				docs[spec.Name.Name+"."+f.Names[0].Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
			}
		}
		return false
	})
	return docs
})

// docRow is a setting as documentation shows it.
type docRow struct{ Path, Env, Default, Doc string }

// docRows lists all settings; a cluster's stand once, under the name default, those of other named groups under NAME.
func docRows() []docRow {
	var rows []docRow
	documentFields(&rows, "", reflect.ValueOf(defaultConfig()))
	return rows
}

func documentFields(rows *[]docRow, prefix string, v reflect.Value) {
	for f, value := range v.Fields() {
		path := join(prefix, yamlName(f))
		switch value.Kind() {
		case reflect.Struct:
			documentFields(rows, path, value)
		case reflect.Map:
			name, entry := defaultCluster, value.MapIndex(reflect.ValueOf(defaultCluster))
			if !entry.IsValid() { // a group without an entry by default
				name, entry = "NAME", reflect.Zero(value.Type().Elem())
			}
			documentFields(rows, join(path, name), entry)
		default:
			*rows = append(*rows, docRow{
				Path: path, Env: envName(path), Default: show(value), Doc: fieldDocs()[v.Type().Name()+"."+f.Name],
			})
		}
	}
}

// show writes a value as YAML and documentation have it; secrets are masked by their type.
func show(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case []string:
		return "[" + strings.Join(x, ", ") + "]"
	case string:
		if x == "" {
			return `""`
		}
		return x
	case secret:
		if x == "" {
			return `""`
		}
		return "'" + redacted + "'"
	case float64:
		return decimal(x)
	default:
		return fmt.Sprint(x)
	}
}

// decimal writes a number as people do: 10485760, not 1.048576e+07.
func decimal(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// configTable is the README's table of settings.
func configTable() string {
	var b strings.Builder
	b.WriteString("| Setting | Environment | Default | Meaning |\n|---|---|---|---|\n")
	for _, r := range docRows() {
		fmt.Fprintf(&b, "| `%s` | `%s` | `%s` | %s |\n", r.Path, r.Env, r.Default, strings.ReplaceAll(r.Doc, "|", `\|`))
	}
	return b.String()
}
