package main

import (
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

const versionsPage = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>DRA network driver: versions of the documentation</title>
<link rel="icon" href="data:,">
<style>:root { color-scheme: light dark; } body { font: 1rem/1.6 system-ui, sans-serif; max-width: 40rem; margin: 2rem auto; padding: 0 1rem; } :focus-visible { outline: 3px solid; outline-offset: 2px; }</style>
</head>
<body>
<main>
<h1>DRA network driver</h1>
<p>The documentation of each version:</p>
<ul>
{{range .}}<li><a href="{{.}}/index.html">{{.}}</a></li>
{{end}}</ul>
</main>
</body>
</html>
`

// listVersions writes a site's start page, which lists its versions. Every version links to this page, so readers can
// get from old versions to new ones without old versions having to be rebuilt. The page lists the existing directories,
// so to remove a version, it is enough to remove its directory.
func listVersions(folder string) error {
	entries, err := filepath.Glob(filepath.Join(folder, "*", "index.html"))
	if err != nil {
		return err
	}
	var versions []string
	for _, entry := range entries {
		versions = append(versions, filepath.Base(filepath.Dir(entry)))
	}
	if len(versions) == 0 {
		return fmt.Errorf("cannot list the versions: %s has no folder with an index.html", folder)
	}
	sortVersions(versions)
	parsed, err := template.New("versions").Parse(versionsPage)
	if err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(folder, "index.html")) //nolint:gosec // the user chooses the path
	if err != nil {
		return err
	}
	if err := parsed.Execute(file, versions); err != nil {
		_ = file.Close() // the first error is more specific
		return err
	}
	return file.Close()
}

// sortVersions sorts releases from newest to oldest, followed by other versions, such as "main", in order of their
// names.
func sortVersions(versions []string) {
	slices.SortFunc(versions, func(a, b string) int {
		switch {
		case semver.IsValid(a) && semver.IsValid(b):
			return semver.Compare(b, a)
		case semver.IsValid(a):
			return -1
		case semver.IsValid(b):
			return 1
		}
		return strings.Compare(a, b)
	})
}
