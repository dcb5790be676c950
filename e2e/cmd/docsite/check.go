package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// result is the result of a check.
type result struct {
	pages, links int
	problems     []string
}

// page contains the links in an HTML page, and the anchors that links can refer to. Links are stored as they appear in
// the page; follow resolves them.
type page struct {
	links []link
	names map[string]bool // values of "id" attributes
}

type link struct {
	target string
	loads  bool // the browser loads it automatically
}

// check checks every page on a site: links within the site must refer to existing files and existing anchors, and
// browsers must load files only from the site. The site is a file system, either on disk or in memory. Problems are
// part of the result, in sorted order, and are not an error.
func check(site fs.FS) (result, error) {
	pages := map[string]page{}
	err := fs.WalkDir(site, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".html" {
			return err
		}
		text, err := fs.ReadFile(site, name)
		if err == nil {
			pages[name], err = read(text)
		}
		return err
	})
	if err != nil {
		return result{}, err
	}
	found := result{pages: len(pages)}
	if found.pages == 0 {
		return found, fmt.Errorf("cannot check the site: it has no page")
	}
	for name, p := range pages {
		for _, l := range p.links {
			counted, problem := follow(site, pages, name, l)
			if counted {
				found.links++
			}
			if problem != "" {
				found.problems = append(found.problems, fmt.Sprintf("%s: %s: %s", name, l.target, problem))
			}
		}
	}
	slices.Sort(found.problems)
	return found, nil
}

// follow reports whether a link stays within the site, and returns the problem with the link, if any. A site has one
// directory for each version and can also be read from disk, so absolute paths and links to directories are not
// allowed.
func follow(site fs.FS, pages map[string]page, source string, l link) (inside bool, problem string) {
	target, err := url.Parse(l.target)
	switch {
	case err != nil:
		return false, err.Error()
	case target.Scheme == "data":
		return false, ""
	case target.Scheme != "" || target.Host != "":
		if l.loads {
			return false, "is loaded from elsewhere"
		}
		return false, ""
	case strings.HasPrefix(target.Path, "/"):
		return false, "begins at the top, so the site can't be in a folder"
	}
	file := path.Join(path.Dir(source), target.Path)
	if target.Path == "" {
		file = source
	}
	info, err := fs.Stat(site, file)
	switch {
	case err != nil:
		return true, "leads nowhere"
	case info.IsDir():
		return true, "leads to a folder, which shows nothing without a server"
	case target.Fragment != "" && path.Ext(file) == ".html" && !pages[file].names[target.Fragment]:
		return true, "the page has no such part"
	}
	return true, ""
}

// read returns the links and anchors in a page.
func read(text []byte) (page, error) {
	root, err := html.Parse(bytes.NewReader(text))
	if err != nil {
		return page{}, err
	}
	p := page{names: map[string]bool{}}
	for node := range root.Descendants() {
		if node.Type != html.ElementNode {
			continue
		}
		for _, attribute := range node.Attr {
			switch attribute.Key {
			case "id":
				p.names[attribute.Val] = true
			case "href":
				p.links = append(p.links, link{attribute.Val, node.Data == "link"})
			case "src", "poster", "data":
				p.links = append(p.links, link{attribute.Val, true})
			}
		}
	}
	return p, nil
}
