package docs

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"
)

// quotaObject contains the fields of Kueue objects that the test reads.
type quotaObject struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		ClusterQueue   string
		ResourceGroups []struct {
			CoveredResources []string
			Flavors          []struct {
				Name      string
				Resources []struct{ Name, NominalQuota string }
			}
		}
	}
	Resources struct {
		DeviceClassMappings []struct {
			Name             string
			DeviceClassNames []string
		}
	}
}

// TestQuotaOfTheHowTo checks the references between the objects in the Kueue example: the claims' class belongs to a
// topology and has a quota, and the job's queue exists. The kinds are from Kueue 0.19; they are not defined in any Go
// module that this project uses.
func TestQuotaOfTheHowTo(t *testing.T) {
	text, err := os.ReadFile("howto.md")
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]quotaObject{}
	var template resourceapi.ResourceClaimTemplate
	var job batchv1.Job
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if !strings.Contains(block[1], "kueue.x-k8s.io/") {
			continue
		}
		for _, document := range strings.Split(block[1], "\n---\n") {
			var object quotaObject
			switch {
			case strings.Contains(document, "kind: ResourceClaimTemplate"):
				err = yaml.UnmarshalStrict([]byte(document), &template)
			case strings.Contains(document, "kind: Job"):
				err = yaml.UnmarshalStrict([]byte(document), &job)
			default:
				err = yaml.Unmarshal([]byte(document), &object)
				objects[object.Kind] = object
			}
			if err != nil {
				t.Errorf("%v:\n%s", err, document)
			}
		}
	}
	mapping := objects["Configuration"].Resources.DeviceClassMappings[0]
	class := template.Spec.Spec.Devices.Requests[0].Exactly.DeviceClassName
	if !slices.Contains(mapping.DeviceClassNames, class) || !strings.Contains(string(text), "{name: net, exactly: "+
		"{deviceClassName: "+class+"}}") {
		t.Errorf("class %s is not mapped, or differs from the class in the claims example", class)
	}
	group := objects["ClusterQueue"].Spec.ResourceGroups[0]
	flavor := group.Flavors[0]
	if last := len(flavor.Resources) - 1; !slices.Contains(group.CoveredResources, mapping.Name) ||
		flavor.Resources[last].Name != mapping.Name || flavor.Resources[last].NominalQuota != "4" {
		t.Errorf("%s does not have a quota of 4", mapping.Name)
	}
	pod := job.Spec.Template.Spec
	if flavor.Name != objects["ResourceFlavor"].Metadata.Name ||
		objects["LocalQueue"].Spec.ClusterQueue != objects["ClusterQueue"].Metadata.Name ||
		job.Labels["kueue.x-k8s.io/queue-name"] != objects["LocalQueue"].Metadata.Name ||
		*pod.ResourceClaims[0].ResourceClaimTemplateName != template.Name {
		t.Error("the objects do not refer to each other")
	}
}
