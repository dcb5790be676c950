package executor

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/utils/clock"
)

// If a plugin cannot be started because its program interpreter is missing, the error names the interpreter.
func TestMissingInterpreter(t *testing.T) {
	dir := t.TempDir()
	present := filepath.Join(dir, "ld.so")
	for name, content := range map[string][]byte{
		"ld.so": nil, "script": []byte("#!/bin/sh\n"), "present": dynamicProgram(t, present),
		"absent": dynamicProgram(t, "/lib64/ld-absent.so.2"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"script": "", "present": "", "nothing": "", "absent": "/lib64/ld-absent.so.2"} {
		if got := MissingInterpreter(filepath.Join(dir, name)); got != want {
			t.Errorf("%s: got interpreter %q, want %q", name, got, want)
		}
	}
	e := New(Options{Exec: PluginExec{}, Dirs: []string{dir}, Clock: clock.RealClock{}})
	_, err := e.Probe(context.Background(), []string{"absent"})
	if err == nil || !strings.Contains(err.Error(), "does not contain /lib64/ld-absent.so.2; install a statically") {
		t.Errorf("wrong error for a missing interpreter: %v", err)
	}
}

// dynamicProgram returns the headers of a dynamically linked program.
func dynamicProgram(t *testing.T, interpreter string) []byte {
	t.Helper()
	const headers = 64 + 56 // elf.Header64 and elf.Prog64
	header := elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1, Shentsize: 64}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS], header.Ident[elf.EI_DATA] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB)
	header.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)
	length := uint64(len(interpreter) + 1)
	var program bytes.Buffer
	for _, part := range []any{header,
		elf.Prog64{Type: uint32(elf.PT_INTERP), Off: headers, Filesz: length, Memsz: length},
		append([]byte(interpreter), 0)} {
		if err := binary.Write(&program, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return program.Bytes()
}
