package host

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const function = "0000:41:10.0"

func TestRebind(t *testing.T) {
	for name, test := range map[string]struct {
		found, want driverBinding
		writes      []busWrite
	}{
		"to the application": {
			driverBinding{"igbvf", ""}, driverBinding{"vfio-pci", "vfio-pci"},
			[]busWrite{{"devices/" + function + "/driver_override", "vfio-pci\n"},
				{"devices/" + function + "/driver/unbind", function}, {"drivers_probe", function}},
		},
		"and back": {
			driverBinding{"vfio-pci", "vfio-pci"}, driverBinding{"igbvf", ""},
			[]busWrite{
				{"devices/" + function + "/driver_override", "igbvf\n"}, {"devices/" + function +
					"/driver/unbind", function},
				{"drivers_probe", function}, {"devices/" + function + "/driver_override", "\n"},
			},
		},
		"nothing to do": {driverBinding{"vfio-pci", ""}, driverBinding{"vfio-pci", ""}, nil},
		"only the override": {driverBinding{"igbvf", "vfio-pci"}, driverBinding{"igbvf", ""},
			[]busWrite{{"devices/" + function + "/driver_override", "\n"}}},
		"without a driver": {driverBinding{"", "vfio-pci"}, driverBinding{"vfio-pci", "vfio-pci"},
			[]busWrite{{"drivers_probe", function}}},
		"back to no driver": {driverBinding{"vfio-pci", "vfio-pci"}, driverBinding{"", ""},
			[]busWrite{{"devices/" + function + "/driver/unbind", function},
				{"devices/" + function + "/driver_override", "\n"}}},
		"an admin's own limit": {driverBinding{"vfio-pci", "vfio-pci"}, driverBinding{"igbvf", "igbvf"},
			[]busWrite{{"devices/" + function + "/driver_override", "igbvf\n"},
				{"devices/" + function + "/driver/unbind", function}, {"drivers_probe", function}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.writes, rebind(function, test.found, test.want),
				cmp.AllowUnexported(busWrite{})); diff != "" {
				t.Errorf("(-want +have):\n%s", diff)
			}
		})
	}
}

// bus reacts to writes the way the kernel does: a probe binds the driver named by the override, or igbvf if there is no
// override.
type bus struct{ driverBinding }

func (b *bus) write(t *testing.T, w busWrite) {
	t.Helper()
	switch file := strings.TrimPrefix(w.file, "devices/"+function+"/"); file {
	case "driver_override":
		b.override = strings.TrimSpace(w.value)
	case "driver/unbind":
		if b.driver == "" {
			t.Fatal("the driver was unbound although the function has none")
		}
		b.driver = ""
	case "drivers_probe":
		if b.driver == "" {
			b.driver = b.override
		}
		if b.driver == "" {
			b.driver = "igbvf"
		}
	default:
		t.Fatalf("write to an unexpected file %s", w.file)
	}
}

// Whichever write the driver is killed after, in either direction, the next driver process restores the original
// binding.
func TestRebindIsRecovered(t *testing.T) {
	application := driverBinding{"vfio-pci", "vfio-pci"}
	for _, original := range []driverBinding{{"igbvf", ""}, {"igbvf", "igbvf"}, {"", ""}, {"", "igbvf"},
		{"vfio-pci", ""}} {
		for _, way := range []struct{ start, target driverBinding }{{original, application}, {application, original}} {
			writes := rebind(function, way.start, way.target)
			for done := range len(writes) + 1 {
				t.Run(fmt.Sprintf("%v to %v, killed after %d", way.start, way.target, done), func(t *testing.T) {
					kernel := bus{way.start}
					for _, w := range writes[:done] {
						kernel.write(t, w)
					}
					for _, w := range rebind(function, kernel.driverBinding, original) {
						kernel.write(t, w)
					}
					if kernel.driverBinding != original {
						t.Errorf("binding = %v, want %v", kernel.driverBinding, original)
					}
				})
			}
		}
	}
}

func TestViableGroups(t *testing.T) {
	for name, test := range map[string]struct {
		siblings []groupMember
		wrong    string
	}{
		"alone":                {},
		"behind a bridge":      {siblings: []groupMember{{address: "0000:40:01.0", driver: "pcieport", bridge: true}}},
		"others that are free": {siblings: []groupMember{{address: "0000:41:10.2"}}},
		"another pod's": {siblings: []groupMember{{address: "0000:41:10.4", driver: "vfio-pci"}},
			wrong: "with 0000:41:10.4, which has the driver vfio-pci"},
		"the host's": {siblings: []groupMember{{address: "0000:41:10.2", driver: "igbvf"}},
			wrong: "with 0000:41:10.2, which has the driver igbvf"},
	} {
		t.Run(name, func(t *testing.T) {
			group := iommuGroup{number: "7",
				members: append(test.siblings, groupMember{address: function, driver: "igbvf"})}
			err := group.viable(function)
			if (err == nil) != (test.wrong == "") || err != nil && !strings.Contains(err.Error(), test.wrong) {
				t.Errorf("error = %v, want %q", err, test.wrong)
			}
		})
	}
}

func TestOpenFunctions(t *testing.T) {
	for enable, want := range map[string]bool{"": false, "0\n": false, "1\n": true, "2\n": true} {
		if got := isOpen(enable); got != want {
			t.Errorf("isOpen(%q) = %t", enable, got)
		}
	}
}

func TestDeviceNodes(t *testing.T) {
	if diff := cmp.Diff([]string{"/dev/vfio/7", "/dev/vfio/vfio"}, iommuGroup{number: "7"}.nodes()); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"/dev/vfio/noiommu-7", "/dev/vfio/vfio"},
		iommuGroup{number: "7", unprotected: true}.nodes()); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
}
