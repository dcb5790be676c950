package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/google/go-cmp/cmp"
)

// pages returns the files of the pages to test, keyed by screenshot name. They are the golden files in the packages
// that generate the pages.
func pages() map[string]string {
	const netdra = "../../cmd/netdra/internal/"
	return map[string]string{
		"cluster":         netdra + "report/testdata/cluster.html",
		"cluster-well":    netdra + "report/testdata/well.html",
		"cluster-hostile": netdra + "report/testdata/hostile.html",
		"node":            netdra + "report/testdata/live.html",
		"node-files":      netdra + "report/testdata/files.html",
	}
}

func looks() []appearance {
	return []appearance{
		{name: "desktop", width: 1280, height: 900},
		{name: "desktop-dark", width: 1280, height: 900, dark: true},
		{name: "phone", width: 390, height: 844, phone: true},
		{name: "phone-dark", width: 320, height: 640, phone: true, dark: true}, // WCAG 1.4.10 requires 320
	}
}

// Every page is complete and legible in every appearance. Pages do not send requests, and no script fails.
func TestPages(t *testing.T) {
	browser := start(t)
	for name, file := range pages() {
		for _, l := range looks() {
			t.Run(name+"/"+l.name, func(t *testing.T) { lookAt(t, browser, name, file, l) })
		}
	}
}

// lookAt opens a page and checks it against all requirements.
func lookAt(t *testing.T, browser context.Context, name, file string, l appearance) {
	t.Helper()
	opened := open(t, browser, file, l)
	for _, measure := range []string{"contrast", "reflow"} {
		for _, problem := range evaluate[[]string](t, opened, "audit."+measure+"()") {
			t.Errorf("%s: %s", measure, problem)
		}
	}
	if ground := evaluate[float64](t, opened, "audit.ground()"); l.dark != (ground < 0.2) {
		t.Errorf("background luminance = %.2f, but the dark theme is requested: %v", ground, l.dark)
	}
	opened.picture(t, name+"-"+l.name)
	checkKeyboard(t, opened)
	checkTree(t, opened)
	opened.mu.Lock()
	defer opened.mu.Unlock()
	asked := withoutData(opened.asked)
	if strings.HasPrefix(name, "site-") { // its style sheet and its pictures are separate files
		asked = slices.DeleteFunc(asked, func(url string) bool {
			return strings.HasPrefix(url, "file://") && url != opened.file
		})
	}
	if diff := cmp.Diff([]string{opened.file}, asked); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if len(opened.said) > 0 {
		t.Errorf("the browser reported errors, want none: %s", strings.Join(opened.said, "\n"))
	}
}

// TestSite checks pages on the documentation site in the same way.
func TestSite(t *testing.T) {
	if *site == "" {
		t.Skip(`"make docs-site-test" builds the documentation site and runs this test`)
	}
	versions, err := filepath.Glob(filepath.Join(*site, "*", "index.html"))
	if err != nil || len(versions) == 0 {
		t.Fatalf("cannot find a version of the site in %q: %v", *site, err)
	}
	browser := start(t)
	version := filepath.Dir(versions[0])
	for name, file := range map[string]string{"versions": *site + "/index.html", "home": versions[0],
		"concepts": version + "/concepts.html", "comparison": version + "/comparison.html",
		"adr": version + "/adr/index.html"} {
		for _, l := range looks() {
			t.Run(name+"/"+l.name, func(t *testing.T) { lookAt(t, browser, "site-"+name, file, l) })
		}
	}
}

// withoutData returns the URLs that refer to something outside the page, which data: URLs do not.
func withoutData(urls []string) []string {
	return slices.DeleteFunc(slices.Clone(urls), func(url string) bool { return strings.HasPrefix(url, "data:") })
}

// checkKeyboard moves through the page with the Tab key and checks that it reaches every control in page order, and
// that each control visibly has the focus.
func checkKeyboard(t *testing.T, opened *tab) {
	t.Helper()
	controls := evaluate[[]string](t, opened, "audit.controls()")
	if len(controls) == 0 {
		t.Error("found no controls, want at least one that the keyboard can reach")
	}
	for i, want := range controls {
		opened.do(t, chromedp.KeyEvent(kb.Tab))
		have := evaluate[struct {
			Index    int
			Name     string
			Problems []string
		}](t, opened, "audit.focused()")
		if have.Index != i {
			t.Errorf("Tab number %d led to %s, want %s", i+1, have.Name, want)
			return
		}
		for _, problem := range have.Problems {
			t.Errorf("while %s had the focus: %s", have.Name, problem)
		}
	}
}

// checkTree checks the accessibility tree, which screen readers use.
func checkTree(t *testing.T, opened *tab) {
	t.Helper()
	nodes := call(t, opened, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes
	for _, problem := range treeProblems(nodes) {
		t.Error(problem)
	}
}

// treeProblems returns the accessibility problems in a page: controls without names, headings in the wrong order, and
// table cells without headers.
func treeProblems(nodes []*accessibility.Node) (problems []string) {
	text := func(value *accessibility.Value) string {
		return strings.Trim(string(valueOf(value)), `"`)
	}
	byID := map[accessibility.NodeID]*accessibility.Node{}
	for _, node := range nodes {
		byID[node.NodeID] = node
	}
	count, level := map[string]int{}, 0
	for _, node := range inOrder(byID, nodes[0]) {
		role, name := text(node.Role), text(node.Name)
		count[role]++
		switch role {
		case "link", "button", "textbox", "searchbox", "checkbox", "combobox", "DisclosureTriangle",
			"heading", "region",
			"image", "RootWebArea", "columnheader", "rowheader":
			if name == "" {
				problems = append(problems, "an element without a name: "+role)
			}
		case "table":
			headers := map[string]int{}
			for _, part := range inOrder(byID, node) {
				headers[text(part.Role)]++
			}
			if headers["columnheader"] == 0 || headers["rowheader"] < headers["row"]-1 {
				problems = append(problems, fmt.Sprintf("a table of %d rows has %d headers of columns and %d of rows",
					headers["row"], headers["columnheader"], headers["rowheader"]))
			}
		}
		if role == "heading" {
			next := headingLevel(node)
			if next > level+1 || next < 1 || (next == 1) != (level == 0) {
				problems = append(problems, fmt.Sprintf("heading %q has level %d, after one of level %d", name,
					next, level))
			}
			level = next
		}
	}
	for _, landmark := range []string{"main", "RootWebArea"} {
		if count[landmark] != 1 {
			problems = append(problems, fmt.Sprintf("%d elements are %s, want one", count[landmark], landmark))
		}
	}
	return problems
}

// inOrder returns a node and its descendants in page order, except nodes that screen readers skip.
func inOrder(
	byID map[accessibility.NodeID]*accessibility.Node, node *accessibility.Node,
) (ordered []*accessibility.Node) {
	if !node.Ignored {
		ordered = append(ordered, node)
	}
	for _, id := range node.ChildIDs {
		if child := byID[id]; child != nil {
			ordered = append(ordered, inOrder(byID, child)...)
		}
	}
	return ordered
}

func valueOf(value *accessibility.Value) []byte {
	if value == nil {
		return nil
	}
	return value.Value
}

func headingLevel(node *accessibility.Node) (level int) {
	for _, property := range node.Properties {
		if property.Name == accessibility.PropertyNameLevel {
			_, _ = fmt.Sscan(string(property.Value.Value), &level) // 0 if it is not a number
		}
	}
	return level
}

// TestPictures takes the screenshots for the documentation, which show the upper part of a page.
func TestPictures(t *testing.T) {
	if *documentation == "" {
		t.Skip(`"make pictures" runs this test to draw the pictures in the documentation`)
	}
	browser := start(t)
	opened := open(t, browser, pages()["cluster"], appearance{width: 1100, height: 1010})
	png, err := chromedp.Run(opened.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(*documentation, "report-cluster.png"), png, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Every element that can be reached with the keyboard can also be operated with it: pressing Enter on a summary folds
// its section, and pressing it on a link goes to a node.
func TestKeyboardOperates(t *testing.T) {
	opened := open(t, start(t), pages()["cluster"], looks()[0])
	opened.do(t, chromedp.Focus(chromedp.CSS("summary")), chromedp.KeyEvent(kb.Enter))
	if evaluate[bool](t, opened, `document.querySelector("details").open`) {
		t.Error("Enter did not fold the devices of a node")
	}
	opened.do(t, chromedp.Focus(chromedp.CSS("tbody a")), chromedp.KeyEvent(kb.Enter))
	if hash := evaluate[string](t, opened, "location.hash"); hash != "#node-rack-7-worker-1" ||
		!evaluate[bool](t, opened, "document.querySelector(':target') !== null") {
		t.Errorf("Enter on a link led to %q, want #node-rack-7-worker-1 and a matching target", hash)
	}
}

// TestFaultsAreFound verifies that the checks above detect faults.
func TestFaultsAreFound(t *testing.T) {
	opened := open(t, start(t), filepath.Join("testdata", "faulty.html"), looks()[2])
	for measure, want := range map[string][]string{
		"contrast": {"has a contrast of 1.", "pale by opacity"},
		"reflow":   {"px wide in a window of 390", "is scrolled sideways, but has no focus"},
	} {
		have := strings.Join(evaluate[[]string](t, opened, "audit."+measure+"()"), "\n")
		for _, text := range want {
			if !strings.Contains(have, text) {
				t.Errorf("%s did not report %q:\n%s", measure, text, have)
			}
		}
	}
	opened.do(t, chromedp.KeyEvent(kb.Tab))
	if have := evaluate[[]string](t, opened, "audit.focused().problems"); !slices.Contains(have, "no outline of 2 px") {
		t.Errorf("a control without a visible focus outline was not reported, got only %q", have)
	}
	nodes := call(t, opened, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes
	have := strings.Join(treeProblems(nodes), "\n")
	for _, want := range []string{"has level 3, after one of level 1", "0 headers of columns",
		"without a name: textbox",
		"0 elements are main"} {
		if !strings.Contains(have, want) {
			t.Errorf("the problems of the accessibility tree do not include %q:\n%s", want, have)
		}
	}
	opened.mu.Lock()
	defer opened.mu.Unlock()
	asked, said := strings.Join(opened.asked, "\n"), strings.Join(opened.said, "\n")
	if !strings.Contains(asked, "nothing.invalid") || !strings.Contains(said, "a script that fails") {
		t.Errorf("got requests %q and errors %q, want the invalid host and the failing script", asked, said)
	}
}
