package nodepage

import (
	"crypto/sha256"
	_ "embed" // the page's parts
	"encoding/base64"
	"html/template"
	"io"
	"strings"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

// Policy is the Content-Security-Policy of the page: nothing is fetched, and no style or script runs but those of its
// own. Style and script are allowed by their hashes, so that text which got past escaping still does not run. The page
// has it as a meta element, and the server as a header.
func Policy() string {
	return strings.Join([]string{
		"default-src 'none'", "img-src data:", "style-src " + digest(pageCSS), "script-src " + digest(pageJS),
		"base-uri 'none'", "form-action 'none'",
	}, "; ")
}

// digest is the source of a policy that allows a text that is in the page.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// Write writes the page as HTML. Every text of the page is escaped: plugins and users supply them.
func Write(w io.Writer, page Page) error {
	parsed, err := template.New("page").Funcs(template.FuncMap{"join": strings.Join}).Parse(pageHTML)
	if err != nil {
		return err
	}
	return parsed.Execute(w, map[string]any{
		"Page": page, "Policy": Policy(),
		"Style":  template.HTML("<style>" + pageCSS + "</style>"),  //nolint:gosec // ours
		"Script": template.HTML("<script>" + pageJS + "</script>"), //nolint:gosec // ours
	})
}
