package main

import (
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strings"

	"github.com/bep/goat"
)

// diagramStyle makes lines and letters use the text color, on both light and dark pages.
const diagramStyle = `<style>svg { color: #1f2328 } @media (prefers-color-scheme: dark) { svg { color: #e6edf3 } }</style>`

// draw returns a picture of an ASCII diagram, as SVG. The first line of the text is "# " followed by the title, which
// becomes the picture's alternative text. The same text always results in the same picture.
func draw(text string) (string, error) {
	title, art, _ := strings.Cut(text, "\n")
	title, found := strings.CutPrefix(title, "# ")
	if !found {
		return "", fmt.Errorf(`cannot find the title: the first line is %q; begin it with "# "`, title)
	}
	picture := goat.BuildSVG(strings.NewReader(strings.Trim(art, "\n") + "\n"))
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" role="img" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" `+
		`font-family="ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace">
<title>%[3]s</title>
%[4]s
%[5]s</svg>
`, picture.Width, picture.Height, html.EscapeString(title), diagramStyle, picture.Body), nil
}

// drawAll draws every diagram in a directory, and writes each picture to a file next to its diagram.
func drawAll(folder string) error {
	return eachDiagram(folder, func(path, picture string) error {
		return os.WriteFile(path, []byte(picture), 0o644) //nolint:gosec // readable by all users
	})
}

// eachDiagram calls visit with the path and the content of each diagram's picture.
func eachDiagram(folder string, visit func(path, picture string) error) error {
	sources, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil {
		return err
	}
	if len(sources) == 0 {
		return fmt.Errorf("cannot find diagrams in %s: it has no .txt file", folder)
	}
	for _, source := range sources {
		text, err := os.ReadFile(source) //nolint:gosec // the walk has just found this path
		if err != nil {
			return err
		}
		picture, err := draw(string(text))
		if err != nil {
			return fmt.Errorf("cannot draw %s: %w", source, err)
		}
		if err := visit(strings.TrimSuffix(source, ".txt")+".svg", picture); err != nil {
			return err
		}
	}
	return nil
}
