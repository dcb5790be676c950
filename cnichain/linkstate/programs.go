package linkstate

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// hooks returns the hooks whose BPF programs stay attached when a link moves to another namespace (dev_tcx_uninstall is
// called only when a link is unregistered). Programs in queueing disciplines are removed along with the queueing
// disciplines, and XDP programs are an attribute of the link.
func hooks() map[string]ebpf.AttachType {
	return map[string]ebpf.AttachType{"tcx-ingress": ebpf.AttachTCXIngress, "tcx-egress": ebpf.AttachTCXEgress}
}

// readPrograms reads the IDs of the programs attached at each hook.
func (s State) readPrograms(index int) error {
	for name, hook := range hooks() {
		programs, err := query(index, hook)
		if err != nil {
			return fmt.Errorf("programs at %s: %w", name, err)
		}
		var ids []string
		for _, program := range programs {
			ids = append(ids, fmt.Sprint(program.ID))
		}
		if len(ids) > 0 {
			s["bpf."+name] = []byte(strings.Join(ids, " "))
		}
	}
	return nil
}

// query returns no programs if the kernel does not support the hook (kernels before 6.6) or BPF.
func query(index int, hook ebpf.AttachType) ([]link.AttachedProgram, error) {
	result, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: hook})
	if errors.Is(err, ebpf.ErrNotSupported) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return result.Programs, nil
}

// detachPrograms detaches all programs at one of a link's hooks, regardless of how they were attached.
func detachPrograms(index int, hook ebpf.AttachType) error {
	programs, err := query(index, hook)
	if err != nil {
		return err
	}
	var problems []error
	for _, program := range programs {
		if id, isLink := program.LinkID(); isLink {
			problems = append(problems, detachLink(id))
			continue
		}
		problems = append(problems, detachProgram(index, hook, program.ID))
	}
	return errors.Join(problems...)
}

func detachProgram(index int, hook ebpf.AttachType, id ebpf.ProgramID) error {
	program, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return err
	}
	defer func() { _ = program.Close() }()
	return link.RawDetachProgram(link.RawDetachProgramOptions{Target: index, Program: program, Attach: hook})
}

// detachLink detaches a BPF link. The BPF link continues to exist while a process has it open, but no longer has any
// effect.
func detachLink(id link.ID) error {
	attached, err := link.NewFromID(id)
	if err != nil {
		return err
	}
	defer func() { _ = attached.Close() }()
	return attached.Detach()
}

// detachXDPLinks detaches BPF links that attach an XDP program to a network link, since netlink detaches only programs
// attached without a BPF link. A network link's index is unique only within its namespace, and the kernel does not
// report the namespace, so a BPF link is detached only if no other BPF link has the same program and index.
func detachXDPLinks(index int, program ebpf.ProgramID) error {
	var found []link.ID
	iterator := link.Iterator{}
	defer iterator.Close()
	for iterator.Next() {
		info, err := iterator.Link.Info()
		if err != nil || info.XDP() == nil {
			continue //nolint:nilerr // it no longer exists or is of a different kind
		}
		if int(info.XDP().Ifindex) == index && info.Program == program {
			found = append(found, iterator.ID)
		}
	}
	if err := iterator.Err(); err != nil {
		return err
	}
	if len(found) != 1 {
		return nil
	}
	return detachLink(found[0])
}
