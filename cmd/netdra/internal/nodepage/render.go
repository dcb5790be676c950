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

// Policy returns the page's Content-Security-Policy. It blocks all requests and allows only the page's own style sheet
// and script, by hash. Even if text were not escaped correctly, it could therefore not run. The policy is included in
// the page as a meta element, and the server sends it as a header.
func Policy() string {
	return strings.Join([]string{
		"default-src 'none'", "img-src data:", "style-src " + digest(pageCSS), "script-src " + digest(pageJS),
		"base-uri 'none'", "form-action 'none'",
	}, "; ")
}

// digest returns the CSP source expression that allows an inline style sheet or script.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// Write renders the page as HTML. It escapes every text because plugins and users supply them.
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
