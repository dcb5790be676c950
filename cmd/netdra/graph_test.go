package main

import (
	"encoding/xml"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
)

// bondedTopology has two layers of one step, above one of two.
const bondedTopology = `
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: bonded}
spec:
  steps:
  - {name: left, type: sriov, selector: {cel: "true"}}
  - {name: right, type: sriov, selector: {cel: "true"}}
  - {name: bond, type: bond, dependOn: [left, right], config: {mode: active-backup, miimon: "100", links: [{name: "{{ left.interfaceName }}"}, {name: "{{ right.interfaceName }}"}], linksInContainer: true}}
  - {name: data, type: vlan, dependOn: [bond], ifName: data0, config: {vlanId: 7, master: "{{ bond.interfaceName }}", linkInContainer: true}}
`

func TestGraphGolden(t *testing.T) {
	for _, format := range graphFormats() {
		code, stdout, stderr := runNetdra(t, bondedTopology, "chain", "graph", "-", "--format", format)
		if code != exitOK {
			t.Fatalf("%s: exit status %d:\n%s", format, code, stderr)
		}
		golden(t, filepath.Join("testdata", "graph", "bonded."+format), stdout)
	}
}

// The picture is well-formed, nothing stands outside of it, and boxes don't overlap.
func TestPicture(t *testing.T) {
	_, picture, _ := runNetdra(t, bondedTopology, "chain", "graph", "-", "--format", graphSVG)
	decoder := xml.NewDecoder(strings.NewReader(picture))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	d := drawing{boxes: []box{{step: "a", class: "t-a"}, {step: "b", class: "t-b"}, {step: "a-long-name-of-a-step", after: []int{0, 1}, layer: 1}, {step: "c", after: []int{0}, layer: 1}}}
	places, width, height := d.layout()
	for i, one := range places {
		if one.x < margin || one.y < margin || one.x+one.width > width-margin || one.y+boxHeight > height-margin {
			t.Errorf("%s is outside: %+v", d.boxes[i].step, one)
		}
		for _, other := range places[:i] {
			if one.y == other.y && one.x < other.x+other.width+gapX && other.x < one.x+one.width+gapX {
				t.Errorf("boxes overlap: %+v and %+v", one, other)
			}
		}
	}
}

func TestGraphRefuses(t *testing.T) {
	for want, arguments := range map[string][]string{
		"use text, dot, mermaid, svg": {"--format", "png"},
		"did you mean":                nil,
	} {
		wrong := strings.Replace(bondedTopology, "vlanId", "vlanID", 1)
		if code, stdout, stderr := runNetdra(t, wrong, append([]string{"chain", "graph", "-"}, arguments...)...); code != exitRefused || !strings.Contains(stderr, want) || stdout != "" {
			t.Errorf("%v: exit status %d, want %q:\n%s%s", arguments, code, want, stdout, stderr)
		}
	}
}
