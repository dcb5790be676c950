package browser

import (
	"context"
	_ "embed" // for the script that measures pages
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

var (
	pictures      = flag.String("pictures", "", "folder for pictures of the pages; none if empty")
	site          = flag.String("site", "", "folder of the documentation's site, as \"make docs-site\" builds it")
	documentation = flag.String("documentation", "", "folder of the pictures that the documentation shows")
)

//go:embed audit.js
var audit string

// start runs Chromium without a display and with its own profile, and returns the context for its first tab.
func start(t *testing.T) context.Context {
	t.Helper()
	var program string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		t.Skip("needs a browser to open the pages; on Debian: apt-get install chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.UserDataDir(t.TempDir()), chromedp.DisableGPU)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium's sandbox does not work as root
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("cannot start %s: %v", program, err)
	}
	return ctx
}

// appearance describes the device and the settings that a reader uses to view a page.
type appearance struct {
	name          string
	width, height int64 // px
	dark, phone   bool
}

// tab is an open page, together with the browser's reports about it.
type tab struct {
	ctx  context.Context //nolint:containedctx // a tab of chromedp is one
	file string          // URL
	mu   sync.Mutex
	// asked contains the URLs of all requests, and said contains script errors and entries from the browser's log.
	asked, said []string
}

// open opens a file in a new tab, like a user who has received a report.
func open(t *testing.T, browser context.Context, file string, l appearance) *tab {
	t.Helper()
	path, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	opened := &tab{ctx: ctx, file: "file://" + path}
	opened.do(t) // opens the tab
	if err := chromedp.Listen(ctx, opened.note); err != nil {
		t.Fatal(err)
	}
	scheme := "light"
	if l.dark {
		scheme = "dark"
	}
	call(t, opened, network.Enable, network.EnableParams{})
	call(t, opened, cdplog.Enable, cdp.Empty{})
	call(t, opened, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme},
			// so that the focused element is scrolled into view without an animation
			{Name: "prefers-reduced-motion", Value: "reduce"}}})
	var options []chromedp.EmulateViewportOption
	if l.phone {
		options = append(options, chromedp.EmulateMobile)
	}
	opened.do(t, chromedp.EmulateViewport(l.width, l.height, options...), chromedp.Navigate(opened.file))
	evaluate[any](t, opened, audit)
	return opened
}

func (o *tab) note(event any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch event := event.(type) {
	case *network.EventRequestWillBeSent:
		o.asked = append(o.asked, event.Request.URL)
	case *runtime.EventExceptionThrown:
		o.said = append(o.said, event.ExceptionDetails.Text)
		if thrown := event.ExceptionDetails.Exception; thrown != nil {
			o.said = append(o.said, thrown.Description)
		}
	case *runtime.EventConsoleAPICalled:
		o.said = append(o.said, "console."+string(event.Type))
	case *cdplog.EventEntryAdded:
		o.said = append(o.said, event.Entry.Text)
	}
}

func (o *tab) do(t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(o.ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

// evaluate evaluates a JavaScript expression in the page and returns its value.
func evaluate[T any](t *testing.T, o *tab, expression string) T {
	t.Helper()
	value, err := chromedp.Run(o.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatalf("%.60s: %v", expression, err)
	}
	return value
}

// call runs a command in the debugging protocol and returns its result.
func call[P, R any](t *testing.T, o *tab, command cdp.Command[P, R], params P) R {
	t.Helper()
	result, err := chromedp.Call(o.ctx, command, params)
	if err != nil {
		t.Fatalf("%s: %v", command.Method, err)
	}
	return result
}

// picture writes a screenshot of the whole page to the directory specified by the flag, if it is set.
func (o *tab) picture(t *testing.T, name string) {
	t.Helper()
	if *pictures == "" {
		return
	}
	const format = 100 // PNG
	png, err := chromedp.Run(o.ctx, chromedp.FullScreenshot(format))
	if err == nil {
		err = os.WriteFile(filepath.Join(*pictures, name+".png"), png, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
