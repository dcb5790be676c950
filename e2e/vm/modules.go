package vm

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ulikunitz/xz"
)

// moduleTree describes the content of lib/modules/VERSION in a kernel package. Dependencies are read from the metadata
// in the module files instead of modules.dep, because depmod creates modules.dep only on an installed system.
type moduleTree struct {
	dir string
	// paths contains the module files' paths, relative to dir, keyed by module name.
	paths   map[string]string
	builtin map[string]bool
}

// module is an unpacked kernel module.
type module struct {
	name string
	path string // relative to the tree, without the suffix .xz
	data []byte
}

// openModules lists a kernel's modules, including built-in ones: callers may request both kinds, but only modules in
// files are loaded.
func openModules(dir string) (*moduleTree, error) {
	tree := &moduleTree{dir: dir, paths: map[string]string{}, builtin: map[string]bool{}}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.Contains(entry.Name(), ".ko") {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		tree.paths[moduleName(path)] = relative
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot list kernel modules: %w", err)
	}
	list, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return nil, fmt.Errorf("cannot list what is built into the kernel: %w", err)
	}
	for line := range strings.Lines(string(list)) {
		tree.builtin[moduleName(strings.TrimSpace(line))] = true
	}
	return tree, nil
}

// moduleName returns the name under which the kernel knows the module in a file.
func moduleName(path string) string {
	name, _, _ := strings.Cut(filepath.Base(path), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

// collect returns the named modules and all their dependencies, except modules that are built into the kernel. Each
// module appears only once, after its own dependencies. An unknown name is an error, because it means that the list is
// wrong or the kernel has changed.
func (t *moduleTree) collect(names []string) ([]module, error) {
	var all []module
	seen := map[string]bool{}
	var add func(name string) error
	add = func(name string) error {
		name = strings.ReplaceAll(name, "-", "_")
		if seen[name] || t.builtin[name] {
			return nil
		}
		seen[name] = true
		m, err := t.read(name)
		if err != nil {
			return err
		}
		needed, err := dependencies(m.data)
		if err != nil {
			return fmt.Errorf("cannot read what kernel module %s depends on: %w", name, err)
		}
		for _, other := range needed {
			if err := add(other); err != nil {
				return fmt.Errorf("%w, which %s depends on", err, name)
			}
		}
		all = append(all, m)
		return nil
	}
	for _, name := range names {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// read reads and unpacks a module. The machine's kernel could load a compressed module only if it had been built with
// CONFIG_MODULE_DECOMPRESS.
func (t *moduleTree) read(name string) (module, error) {
	path, ok := t.paths[name]
	if !ok {
		return module{}, fmt.Errorf("the kernel has no module %s", name)
	}
	data, err := os.ReadFile(filepath.Join(t.dir, path))
	if err != nil {
		return module{}, err
	}
	plain, compressed := strings.CutSuffix(path, ".xz")
	if compressed {
		if data, err = unxz(data); err != nil {
			return module{}, fmt.Errorf("cannot decompress kernel module %s: %w", name, err)
		}
	}
	return module{name: name, path: plain, data: data}, nil
}

func unxz(data []byte) ([]byte, error) {
	reader, err := xz.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(reader)
}

// dependenciesOfFile returns the names of the modules that the module in a file depends on.
func dependenciesOfFile(file string) ([]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	needed, err := dependencies(data)
	if err != nil {
		return nil, fmt.Errorf("cannot read what kernel module %s depends on: %w", file, err)
	}
	return needed, nil
}

// dependencies reads "depends=a,b" from a module's .modinfo section, in which each entry ends with a zero byte.
func dependencies(data []byte) ([]string, error) {
	file, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	section := file.Section(".modinfo")
	if section == nil {
		return nil, errors.New("it has no .modinfo")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for entry := range bytes.SplitSeq(info, []byte{0}) {
		if list, ok := bytes.CutPrefix(entry, []byte("depends=")); ok && len(list) > 0 {
			return strings.Split(string(list), ","), nil
		}
	}
	return nil, nil
}
