// Package nodeattributes reads device attributes that the driver cannot discover, such as a port's rail or a machine's
// block, from files on the node. Programs provided by the administrator write the files, for example based on data from
// a cloud metadata service.
//
// Invariant: it never runs a program, and an invalid file changes nothing.
package nodeattributes

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/json"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// Limits for a directory. The limits on rows per file and attributes per row are the same as for a policy's table.
const (
	maxFiles = 16
	maxBytes = 256 << 10 // per file
)

// File is the content of an attribute file.
type File struct {
	// Name is the name of the file in its directory. It is not part of the file's content.
	Name    string `json:"name,omitempty"`
	Devices []Row  `json:"devices"`
}

// Row assigns attributes to devices. Exactly one of PCIAddress, Interface, MAC and AllDevices is set.
type Row struct {
	// PCIAddress and Attributes have the same meaning as in a policy's table, but all attribute names must have a
	// domain.
	v1alpha1.PCIAddressAttributes
	// Interface is the current kernel name of an interface on the node.
	Interface string `json:"interface,omitempty"`
	// MAC is the address of one or more interfaces: hexadecimal octets separated by colons.
	MAC string `json:"mac,omitempty"`
	// AllDevices selects every device on the node.
	AllDevices bool `json:"allDevices,omitempty"`
}

// Directory reads the attribute files in a directory. It is safe for concurrent use.
type Directory struct {
	// Path is the path to the directory. If the path is empty or does not exist, no files are read.
	Path string

	mu    sync.Mutex
	files []File // the last valid content of every file, sorted by name
}

// Files returns the result of the last call of Read, sorted by name.
func (d *Directory) Files() []File {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.files
}

// Read returns the content of the files whose names end in ".json" and do not start with a dot, sorted by name. If a
// file cannot be read or is not valid, Read returns a problem and that file's last valid content.
func (d *Directory) Read() ([]File, []discovery.Problem) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var files []File
	var problems []discovery.Problem
	names, err := d.list()
	if err != nil {
		return d.files, []discovery.Problem{{Message: fmt.Sprintf("cannot list attribute files: %v; make the "+
			"directory readable; until then, the files from the last successful read are used", err)}}
	}
	for i, name := range names[:min(len(names), maxFiles+1)] {
		file, err := readFile(filepath.Join(d.Path, name))
		if i == maxFiles {
			err = fmt.Errorf("it is one of %d files, and the limit is %d", len(names), maxFiles)
		}
		if err != nil {
			problems = append(problems, discovery.Problem{Message: fmt.Sprintf("cannot use attribute file %s: %v; "+
				"correct it; until then, its last valid content since the start of the driver is used",
				filepath.Join(d.Path, name), err)})
			before := slices.IndexFunc(d.files, func(f File) bool { return f.Name == name })
			if before < 0 || i == maxFiles {
				continue
			}
			file = d.files[before]
		}
		file.Name = name
		files = append(files, file)
	}
	d.files = files
	return files, problems
}

// list returns the names of the attribute files, sorted.
func (d *Directory) list() (names []string, err error) {
	if d.Path == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, entry := range entries {
		if name := entry.Name(); strings.HasSuffix(name, ".json") && !strings.HasPrefix(name, ".") {
			names = append(names, name)
		}
	}
	return names, err
}

// readFile reads and validates a file. Unknown and duplicate fields are errors, as in policies.
func readFile(path string) (file File, err error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return File{}, err
	case !info.Mode().IsRegular(): // reading a pipe would block
		return File{}, errors.New("it is not a regular file")
	case info.Size() > maxBytes:
		return File{}, fmt.Errorf("it has %d bytes, and the limit is %d", info.Size(), maxBytes)
	}
	data, err := os.ReadFile(path) //nolint:gosec // the directory belongs to root
	if err != nil {
		return File{}, err
	}
	strict, err := json.UnmarshalStrict(data, &file)
	if err := cmp.Or(err, errors.Join(strict...)); err != nil {
		return File{}, fmt.Errorf("it does not have the form {\"devices\": [{…}]}: %w", err)
	}
	devices := field.NewPath("devices")
	tables := make([]v1alpha1.PCIAddressAttributes, 0, len(file.Devices))
	var errs field.ErrorList
	for i := range file.Devices {
		row := &file.Devices[i]
		if !row.hasOneSelector() {
			errs = append(errs, field.Required(devices.Index(i),
				"exactly one of pciAddress, interface, mac and allDevices"))
		}
		if address, err := net.ParseMAC(row.MAC); err == nil {
			row.MAC = address.String() // in the kernel's notation, even if the file uses dashes
		} else if row.MAC != "" {
			errs = append(errs, field.Invalid(devices.Index(i).Child("mac"), row.MAC,
				"must be octets in hexadecimal with colons"))
		}
		tables = append(tables, row.PCIAddressAttributes)
	}
	if errs = append(errs, v1alpha1.ValidateNodeAttributes(tables, devices)...); len(errs) > 0 {
		// A program that gets one row wrong probably gets all rows wrong.
		return File{}, fmt.Errorf("%w (the first of %d errors)", errs[0], len(errs))
	}
	return file, nil
}

func (r *Row) hasOneSelector() bool {
	count := 0
	for _, set := range []bool{r.PCIAddress != "", r.Interface != "", r.MAC != "", r.AllDevices} {
		if set {
			count++
		}
	}
	return count == 1
}

// selects reports whether a row selects a device by PCI address, interface name or MAC address.
func (r *Row) selects(d *discovery.Device) bool {
	switch {
	case r.PCIAddress != "":
		return r.PCIAddress == string(d.PCIAddress)
	case r.Interface != "":
		return r.Interface == string(d.Interface)
	}
	return r.MAC != "" && r.MAC == d.MAC && !d.InheritedMAC
}
