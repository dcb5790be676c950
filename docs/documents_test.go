package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain"
	chainapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/docs/reference"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// TestDocumentsOfTheHowTo checks the objects in howto.md, since readers copy them: the webhook and the driver must
// accept the objects, and claims must name classes that are defined on the page.
func TestDocumentsOfTheHowTo(t *testing.T) {
	text, err := os.ReadFile("howto.md")
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{chainapi.AddToScheme, policyapi.AddToScheme, corev1.AddToScheme,
		resourceapi.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	classes := map[string]bool{"gpu.example.com": true}
	extended := map[corev1.ResourceName]bool{}
	var claims []resourceapi.DeviceClaim
	checked := 0
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(block[1], "kind: Kustomization") {
			checkOverlay(t, block[1])
			continue
		}
		if strings.Contains(block[1], "kueue.x-k8s.io/") {
			continue // TestQuotaOfTheHowTo
		}
		if !strings.Contains(block[1], "apiVersion: networking.dra.io/v1alpha1\nkind") &&
			!strings.Contains(block[1], "kind: Pod") && !strings.Contains(block[1], "kind: Service\n") {
			var claim resourceapi.DeviceClaim
			if err := yaml.UnmarshalStrict([]byte(block[1]), &claim); err != nil {
				t.Errorf("%v:\n%s", err, block[1])
			}
			claims = append(claims, claim)
			continue
		}
		for _, document := range strings.Split(block[1], "\n---\n") {
			object, _, err := decoder.Decode([]byte(document), nil, nil)
			if err != nil {
				t.Errorf("%v:\n%s", err, document)
				continue
			}
			checked++
			switch o := object.(type) {
			case *policyapi.DeviceExposurePolicy:
				if o.Spec.Action == "" {
					o.Spec.Action = policyapi.ActionExpose // the API server's default
				}
				problems, remarks := policy.Check(o)
				if len(problems) > 0 || len(remarks) > 0 {
					t.Errorf("policy %s: %v %v", o.Name, problems, remarks)
				}
			case *chainapi.NetworkTopology:
				for _, problem := range cnichain.Validate(o, cnichain.DefaultSchemas()) {
					t.Errorf("topology %s: %v", o.Name, problem)
				}
				for i := range o.Spec.Steps {
					extended[corev1.ResourceName(o.Spec.Steps[i].ExtendedResourceName)] = true
					if step := &o.Spec.Steps[i]; step.Selector != nil {
						classes[chainapi.ClassName(o.Name, step.Name)] = true
						if err := policy.CheckClassSelector(step.Selector.CEL); err != nil {
							t.Errorf("topology %s, step %s: %v", o.Name, step.Name, err)
						}
					}
				}
			case *resourceapi.DeviceClass:
				classes[o.Name] = true
				for _, selector := range o.Spec.Selectors {
					if err := policy.CheckClassSelector(selector.CEL.Expression); err != nil {
						t.Errorf("class %s: %v", o.Name, err)
					}
				}
				for _, config := range o.Spec.Config {
					if !chainapi.IsBandwidthParameters(config.Opaque.Parameters.Raw) {
						t.Errorf("class %s has parameters that are not bandwidth parameters", o.Name)
					}
				}
			case *corev1.Pod:
				for _, container := range o.Spec.Containers {
					for name := range container.Resources.Limits {
						if strings.Contains(string(name), "/") && !extended[name] {
							t.Errorf("pod %s requests %s, which no topology defines", o.Name, name)
						}
					}
					if len(container.Resources.Claims) != len(o.Spec.ResourceClaims) {
						t.Errorf("pod %s: container %s does not name all claims of the pod", o.Name, container.Name)
					}
				}
			case *chainapi.CNIPluginSchema:
				for _, problem := range cnichain.ValidateSchema(&o.Spec) {
					t.Errorf("schema %s: %v", o.Name, problem)
				}
			}
		}
	}
	for _, claim := range claims {
		for _, request := range claim.Requests {
			if !classes[request.Exactly.DeviceClassName] {
				t.Errorf("a claim requests DeviceClass %s, which no topology defines", request.Exactly.DeviceClassName)
			}
		}
		for _, config := range claim.Config {
			if _, err := chainapi.DecodeClaimParameters(config.Opaque.Parameters.Raw); err != nil {
				t.Error(err)
			}
		}
	}
	if checked < 10 || len(claims) < 4 {
		t.Errorf("found only %d objects and %d claims", checked, len(claims))
	}
}

// TestReasonsAreDescribed checks that observing.md explains every condition reason.
func TestReasonsAreDescribed(t *testing.T) {
	page, err := os.ReadFile("observing.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for file, pattern := range map[string]string{
		"cmd/dra-network-controller/internal/conditions/conditions.go": `Reason\w+ = "(\w+)"`,
		"cmd/dra-network-controller/internal/topology/status.go":       `Reason\w+ = "(\w+)"`,
		"cmd/dra-network-controller/internal/exposure/counter.go":      `Reason\w+ = "(\w+)"`,
		"plugin/internal/status/writer.go":                             `(?:reason :?=|\.reason, .* = true,|ReasonPrepare =) "(\w+)"`,
	} {
		source, err := os.ReadFile("../" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, reason := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(source), -1) {
			found++
			if !strings.Contains(string(page), "| `"+reason[1]+"` |") {
				t.Errorf("observing.md does not list the reason %s from %s", reason[1], file)
			}
		}
	}
	if found != 17 {
		t.Errorf("found %d reasons in the code, want the 17 of the page", found)
	}
}

// checkOverlay checks that the images and objects changed by an overlay exist in the manifests.
func checkOverlay(t *testing.T, text string) {
	t.Helper()
	var overlay struct {
		Images  []struct{ Name string }
		Patches []struct {
			Target struct{ Kind, Name string }
			Patch  string
		}
	}
	if err := yaml.Unmarshal([]byte(text), &overlay); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	var manifests strings.Builder
	for _, file := range []string{"node.yaml", "controller.yaml", "policies.yaml"} {
		manifest, err := os.ReadFile("../deploy/" + file)
		if err != nil {
			t.Fatal(err)
		}
		manifests.Write(manifest)
	}
	for _, image := range overlay.Images {
		if !strings.Contains(manifests.String(), "image: "+image.Name+":") {
			t.Errorf("no manifest uses the image %s", image.Name)
		}
	}
	for _, patch := range overlay.Patches {
		if object := "kind: " + patch.Target.Kind + "\nmetadata:\n  name: " + patch.Target.Name +
			"\n"; !strings.Contains(manifests.String(), object) {
			t.Errorf("no manifest contains %s %s", patch.Target.Kind, patch.Target.Name)
		}
	}
	if len(overlay.Images) != 2 || len(overlay.Patches) != 1 {
		t.Errorf("the overlay has %d images and %d patches, want 2 and 1", len(overlay.Images), len(overlay.Patches))
	}
}

// TestLinksLeadSomewhere checks that the targets of links to files and headings in the project exist.
func TestLinksLeadSomewhere(t *testing.T) {
	files, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	top, err := filepath.Glob("../*.md")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, file := range slices.Concat(files, more, top) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		prose := regexp.MustCompile("`[^`\n]*`").ReplaceAllString(string(text), "") // code may look like a link
		for _, link := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(prose, -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			checked++
			path, anchor, _ := strings.Cut(link[1], "#")
			target := filepath.Join(filepath.Dir(file), path)
			if path == "" {
				target = file
			}
			content, err := os.ReadFile(target)
			if info, statErr := os.Stat(target); statErr != nil || err != nil && !info.IsDir() {
				t.Errorf("%s: broken link to %s", file, link[1])
			} else if anchor != "" && !slices.Contains(anchors(string(content)), anchor) {
				t.Errorf("%s: the target of link %s has no such heading", file, link[1])
			}
		}
	}
	if checked < 20 {
		t.Errorf("checked only %d links, want at least 20", checked)
	}
}

// anchors returns the link anchors for a document's headings.
func anchors(text string) []string {
	var names []string
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		names = append(names, reference.Anchor(heading[1]))
	}
	return names
}

// TestLongDocumentsHaveContents checks that long documents begin with a list of their sections, in order.
func TestLongDocumentsHaveContents(t *testing.T) {
	files, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("reference/*.md")
	if err != nil {
		t.Fatal(err)
	}
	long := 0
	for _, file := range append(files, more...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		contents := reference.Contents(string(text))
		if strings.Count(contents, "\n") <= 10 {
			continue
		}
		long++
		if first, _, _ := strings.Cut(string(text), "\n## "); !strings.Contains(first, contents) {
			t.Errorf("%s has many sections but does not begin with a table of contents:\n%s", file, contents)
		}
	}
	if long < 2 {
		t.Errorf("found only %d long documents: the test does not find the headings", long)
	}
}
