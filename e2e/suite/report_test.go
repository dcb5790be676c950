package suite

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
)

// reports waits until the page that netdra generates on the node contains all texts.
func (e *env) reports(texts ...string) {
	e.Helper()
	program, err := filepath.Abs("../../bin/netdra")
	if err != nil {
		e.Fatal(err)
	}
	e.eventually("the page of the node reports the problem", func(ctx context.Context) (bool, error) {
		page, err := e.cluster.Exec(ctx, program, "report")
		if err != nil {
			return false, err
		}
		for _, text := range texts {
			if !strings.Contains(string(page), text) {
				return false, fmt.Errorf("%q is not on the page:\n%s", text, page)
			}
		}
		return true, nil
	})
}
