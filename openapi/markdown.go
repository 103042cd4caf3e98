package openapi

import (
	"html/template"
	"regexp"
	"strings"
)

// markdown renders what the document's descriptions use of CommonMark: paragraphs, "## " headings, "* " lists, `code` and **strong**. All
// else is text. It is escaped first, so that nothing in the document can become markup.
func markdown(text string) template.HTML {
	var out strings.Builder
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		writeBlock(&out, strings.TrimSpace(block))
	}
	return template.HTML(out.String()) //nolint:gosec // every part of it went through inline, which escapes
}

// writeBlock writes what stands between two blank lines: a heading may be followed by a paragraph or a list without one.
func writeBlock(out *strings.Builder, block string) {
	if heading, rest, _ := strings.Cut(block, "\n"); strings.HasPrefix(heading, "## ") {
		title := strings.TrimPrefix(heading, "## ")
		out.WriteString(`<h3 id="` + anchor(title) + `">` + string(inline(title)) + "</h3>\n")
		if block = rest; block == "" {
			return
		}
	}
	if !strings.HasPrefix(block, "* ") {
		out.WriteString("<p>" + string(inline(block)) + "</p>\n")
		return
	}
	out.WriteString("<ul>\n")
	for item := range strings.SplitSeq(strings.TrimPrefix(block, "* "), "\n* ") {
		out.WriteString("<li>" + string(inline(item)) + "</li>\n")
	}
	out.WriteString("</ul>\n")
}

var (
	notWord = regexp.MustCompile(`[^a-z0-9]+`)
	// Code comes first in each match, so that stars within it stay what they are.
	spans = regexp.MustCompile("`[^`]+`|\\*\\*[^*]+\\*\\*|\\*[^* ][^*]*\\*")
)

func anchor(title string) string {
	return strings.Trim(notWord.ReplaceAllString(strings.ToLower(title), "-"), "-")
}

// inline renders one paragraph.
func inline(text string) template.HTML {
	escaped := template.HTMLEscapeString(text)
	html := spans.ReplaceAllStringFunc(escaped, func(span string) string {
		switch {
		case span[0] == '`':
			return "<code>" + strings.Trim(span, "`") + "</code>"
		case strings.HasPrefix(span, "**"):
			return "<strong>" + strings.Trim(span, "*") + "</strong>"
		default:
			return "<em>" + strings.Trim(span, "*") + "</em>"
		}
	})
	return template.HTML(html) //nolint:gosec // escaped above
}
