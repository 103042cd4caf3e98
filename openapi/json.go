package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// toJSON converts YAML to JSON and keeps the order of members, which encoding/json would sort: the page shows operations in the order
// they were written in.
func toJSON(doc []byte) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(doc, &root); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := writeJSON(&out, &root); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func writeJSON(out *bytes.Buffer, n *yaml.Node) error {
	switch n.Kind {
	case yaml.DocumentNode:
		return writeJSON(out, n.Content[0])
	case yaml.MappingNode:
		return writeMembers(out, n.Content)
	case yaml.SequenceNode:
		return writeElements(out, n.Content)
	case yaml.ScalarNode:
		return writeScalar(out, n)
	default: // aliases: the document has none, so that it reads the same for tools that do not know them
		return fmt.Errorf("line %d: YAML aliases are not used here", n.Line)
	}
}

func writeMembers(out *bytes.Buffer, content []*yaml.Node) error {
	out.WriteByte('{')
	for i := 0; i < len(content); i += 2 {
		if i > 0 {
			out.WriteByte(',')
		}
		name, err := json.Marshal(content[i].Value)
		if err != nil {
			return err
		}
		out.Write(name)
		out.WriteByte(':')
		if err := writeJSON(out, content[i+1]); err != nil {
			return err
		}
	}
	out.WriteByte('}')
	return nil
}

func writeElements(out *bytes.Buffer, content []*yaml.Node) error {
	out.WriteByte('[')
	for i, n := range content {
		if i > 0 {
			out.WriteByte(',')
		}
		if err := writeJSON(out, n); err != nil {
			return err
		}
	}
	out.WriteByte(']')
	return nil
}

// writeScalar keeps numbers as they were written, since a float64 would round a 64-bit example.
func writeScalar(out *bytes.Buffer, n *yaml.Node) error {
	switch n.Tag {
	case "!!int", "!!float", "!!bool", "!!null":
		if !json.Valid([]byte(n.Value)) {
			return fmt.Errorf("line %d: %q is a number or word of YAML, not of JSON", n.Line, n.Value)
		}
		out.WriteString(n.Value)
		return nil
	}
	text, err := json.Marshal(n.Value)
	out.Write(text)
	return err
}
