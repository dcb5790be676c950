package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// Third-party actions are pinned to a commit, and a workflow has only the permissions that its jobs need.
func TestWorkflowsHaveLeastPermissions(t *testing.T) {
	files, err := filepath.Glob("../.github/workflows/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no workflows found: %v", err)
	}
	pinned := regexp.MustCompile(`^[a-z-]+/[a-z-]+@[0-9a-f]{40}$`)
	for _, file := range files {
		var workflow struct {
			Permissions map[string]string
			Jobs        map[string]struct {
				Permissions map[string]string
				Steps       []struct{ Uses, Run string }
			}
		}
		read(t, file, &workflow)
		if workflow.Permissions == nil || len(workflow.Permissions) > 0 {
			t.Errorf("%s has permissions %v, want none", file, workflow.Permissions)
		}
		for name, job := range workflow.Jobs {
			if len(job.Permissions) != 1 {
				t.Errorf("%s, job %s has permissions %v, want one", file, name, job.Permissions)
			}
			for _, step := range job.Steps {
				if step.Uses != "" && !pinned.MatchString(step.Uses) {
					t.Errorf("%s, job %s uses %s, which is not pinned to a commit", file, name, step.Uses)
				}
				// Values from untrusted users, such as branch names, are never part of a script.
				if strings.Contains(step.Run, "${{") {
					t.Errorf("%s, job %s: the script contains an expression: %s", file, name, step.Run)
				}
			}
		}
	}
}

// The release workflow validates the tag before using it: a tag name that contains a script is rejected.
func TestTagsOfReleases(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("bash is missing, and GitHub runs the scripts with it")
	}
	var workflow struct {
		Jobs map[string]struct{ Steps []struct{ Run string } }
	}
	read(t, "../.github/workflows/release.yml", &workflow)
	var script string
	for _, step := range workflow.Jobs["make"].Steps {
		if script = step.Run; script != "" {
			break
		}
	}
	const registry = "registry.example/team"
	for _, c := range []struct {
		version, registry string
		good              bool
	}{
		{"v0.1.0", registry, true}, {"v1.20.3-rc.1", registry, true}, {"v0.1.0", "", false},
		{"v2.0.0", registry, false},
		{"v0.1.0;id", registry, false}, {"v0.1.0$(shell${IFS}id)", registry, false}, {"v`id`", registry, false},
		{"v0.1.0\nid", registry, false}, {"v", registry, false},
	} {
		cmd := exec.CommandContext(t.Context(), "bash", "-e", "-c", script)
		cmd.Env = append(os.Environ(), "VERSION="+c.version, "REGISTRY="+c.registry)
		if output, err := cmd.CombinedOutput(); (err == nil) != c.good {
			t.Errorf("version %q with registry %q: wrong result %v\n%s", c.version, c.registry, err, output)
		}
	}
}

// Dependabot updates every Go module in the repository.
func TestDependabotKnowsAllModules(t *testing.T) {
	var config struct {
		Updates []struct {
			Ecosystem   string `json:"package-ecosystem"`
			Directory   string
			Directories []string
		}
	}
	read(t, "../.github/dependabot.yml", &config)
	var known, modules []string
	for _, update := range config.Updates {
		if update.Ecosystem == "gomod" {
			known = append(known, update.Directories...)
			if update.Directory != "" {
				known = append(known, update.Directory)
			}
		}
	}
	for _, pattern := range []string{"go.mod", "*/go.mod", ".*/*/go.mod", "*/*/go.mod"} {
		found, err := filepath.Glob(filepath.Join("..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			if module := "/" + strings.TrimPrefix(filepath.Dir(file), "../"); module != "/.." {
				modules = append(modules, module)
			} else {
				modules = append(modules, "/")
			}
		}
	}
	slices.Sort(known)
	slices.Sort(modules)
	if diff := cmp.Diff(slices.Compact(modules), known); diff != "" {
		t.Errorf("wrong modules in .github/dependabot.yml (-modules +known):\n%s", diff)
	}
}

// Issue templates contain the fields that GitHub requires.
func TestTemplatesOfIssues(t *testing.T) {
	for _, name := range []string{"bug", "feature"} {
		var form struct {
			Name, Description string
			Body              []struct{ Type, ID string }
		}
		read(t, "../.github/ISSUE_TEMPLATE/"+name+".yml", &form)
		if form.Name == "" || form.Description == "" || len(form.Body) < 3 {
			t.Errorf("form %s is incomplete: %+v", name, form)
		}
		for _, field := range form.Body {
			if field.Type == "" || field.ID == "" && field.Type != "markdown" {
				t.Errorf("form %s has a field without a type or an ID: %+v", name, field)
			}
		}
	}
}

func read(t *testing.T, file string, object any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, object); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}
