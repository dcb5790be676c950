package rdmalink

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink/nl"
)

// message returns a response like the kernel's, with the attributes in the same order as in nldev.c.
func message(attributes ...*nl.RtAttr) []byte {
	var data []byte
	for _, attribute := range attributes {
		data = append(data, attribute.Serialize()...)
		for len(data)%4 != 0 {
			data = append(data, 0)
		}
	}
	return data
}

func TestParseDevice(t *testing.T) {
	flags := make([]byte, 8)
	binary.NativeEndian.PutUint64(flags, 1<<20)
	whole := message(
		nl.NewRtAttr(1, nl.Uint32Attr(7)), nl.NewRtAttr(2, nl.ZeroTerminated("mlx5_0")),
		nl.NewRtAttr(3, nl.Uint32Attr(2)), nl.NewRtAttr(4, flags), nl.NewRtAttr(67, nl.ZeroTerminated("roce")))
	device, err := parseDevice(whole)
	if want := (Device{Index: 7, Name: "mlx5_0", Ports: 2, Protocol: "roce"}); err != nil ||
		device.Index != want.Index ||
		device.Name != want.Name || device.Ports != want.Ports || device.Protocol != want.Protocol {
		t.Errorf("device = %+v, %v, want %+v", device, err, want)
	}
	for name, data := range map[string][]byte{
		"no index":     message(nl.NewRtAttr(2, nl.ZeroTerminated("mlx5_0"))),
		"short index":  message(nl.NewRtAttr(1, []byte{1}), nl.NewRtAttr(2, nl.ZeroTerminated("mlx5_0"))),
		"cut":          whole[:10],
		"wrong length": {255, 255, 1, 0, 0, 0, 0, 0},
	} {
		if device, err := parseDevice(data); err == nil {
			t.Errorf("%s: parsed as %+v, want an error", name, device)
		}
	}
	for end := range whole { // no message from the kernel may cause a panic
		_, _ = parseDevice(whole[:end])
		_, _ = parsePorts([][]byte{whole[:end]})
	}
}

func TestParseDevices(t *testing.T) {
	device := func(index uint32, name string) []byte {
		return message(nl.NewRtAttr(1, nl.Uint32Attr(index)), nl.NewRtAttr(2, nl.ZeroTerminated(name)))
	}
	devices, err := parseDevices([][]byte{device(4, "rxe1"), device(2, "rxe0"), device(4, "rxe1")})
	if err != nil || len(devices) != 2 || devices[0].Name != "rxe0" || devices[1].Index != 4 {
		t.Errorf("devices = %+v, %v; want each once, sorted by name", devices, err)
	}
	if devices, err := parseDevices([][]byte{device(1, "rxe0"),
		message(nl.NewRtAttr(2, nl.ZeroTerminated("x")))}); err == nil {
		t.Errorf("an invalid message was parsed as %+v, want an error", devices)
	}
}

func TestParsePorts(t *testing.T) {
	port := func(index uint32) []byte {
		return message(nl.NewRtAttr(1, nl.Uint32Attr(0)), nl.NewRtAttr(3, nl.Uint32Attr(1)),
			nl.NewRtAttr(50, nl.Uint32Attr(index)))
	}
	elsewhere := message(nl.NewRtAttr(1, nl.Uint32Attr(0)), nl.NewRtAttr(3, nl.Uint32Attr(3)))
	links, err := parsePorts([][]byte{port(9), port(4), port(9), elsewhere, port(0)})
	if err != nil || !slices.Equal(links, []int{4, 9}) {
		t.Errorf("links = %v, %v, want 4 and 9", links, err)
	}
	if links, err := parsePorts(nil); err == nil {
		t.Errorf("got links %v although no port was read", links)
	}
}

// FuzzMessages parses arbitrary bytes as messages about RDMA devices.
func FuzzMessages(f *testing.F) {
	f.Add(message(nl.NewRtAttr(1, nl.Uint32Attr(3)), nl.NewRtAttr(2, nl.ZeroTerminated("rxe0")),
		nl.NewRtAttr(67, nl.ZeroTerminated("roce"))))
	f.Add(message(nl.NewRtAttr(50, nl.Uint32Attr(4))))
	f.Add([]byte{4, 0, 1, 0, 3})
	f.Fuzz(func(t *testing.T, data []byte) {
		devices, err := parseDevices([][]byte{data})
		if err == nil && (len(devices) != 1 || strings.Contains(devices[0].Name, "\x00")) {
			t.Errorf("one message was parsed as devices %+v", devices)
		}
		if links, err := parsePorts([][]byte{data}); err == nil && len(links) > 1 {
			t.Errorf("one port has several links: %v", links)
		}
	})
}

// If a driver fails for a port, the kernel silently ends the list of ports.
func TestDeviceThatDoesNotAnswer(t *testing.T) {
	port := message(nl.NewRtAttr(1, nl.Uint32Attr(0)), nl.NewRtAttr(3, nl.Uint32Attr(1)),
		nl.NewRtAttr(50, nl.Uint32Attr(9)))
	for answered, messages := range [][][]byte{{}, {port}, {port, port}} {
		device := Device{Index: 0, Name: "mlx4_0", Ports: 2}
		if err := device.addPorts(messages); err != nil || device.LinksUnknown != (answered < 2) {
			t.Errorf("with %d ports read, device = %+v, %v", answered, device, err)
		}
	}
}
