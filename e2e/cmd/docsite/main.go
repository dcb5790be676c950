// Command docsite complements the documentation site generator: it draws the diagrams, lists the available versions,
// and checks that every link has a target and that no page loads anything from other sites.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	if err := command().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "docsite:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{Use: "docsite", Short: "Draw, list and check the documentation",
		SilenceUsage: true, SilenceErrors: true}
	for _, c := range []struct {
		use, short string
		run        func(folder string) error
	}{
		{"diagrams DIR", "Draw each diagram of a folder beside its text", drawAll},
		{"versions DIR", "Write the list of versions of a site", listVersions},
		{"check DIR", "Check every link of a site", func(folder string) error {
			return report(check(os.DirFS(folder)))
		}},
	} {
		root.AddCommand(&cobra.Command{Use: c.use, Short: c.short, Args: cobra.ExactArgs(1),
			RunE: func(_ *cobra.Command, args []string) error { return c.run(args[0]) }})
	}
	return root
}

// report prints the result of a check. If there are problems, it returns an error with their number.
func report(found result, err error) error {
	if err != nil {
		return err
	}
	for _, problem := range found.problems {
		fmt.Println(problem)
	}
	if len(found.problems) > 0 {
		return fmt.Errorf("%d links are broken: correct them in the Markdown files; files that are not pages are in "+
			"the site only if docs/site/hugo.toml mounts it", len(found.problems))
	}
	fmt.Printf("%d pages with %d links to each other are whole, and load nothing from elsewhere\n", found.pages,
		found.links)
	return nil
}
