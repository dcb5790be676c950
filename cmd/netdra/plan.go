package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

func planCommand(on machine, to console) *cobra.Command {
	flags := &chainFlags{}
	cmd := &cobra.Command{
		Use:   "plan TOPOLOGY --device STEP=LINK...",
		Short: "Show what a run would do, step by step, without doing it",
		Long: `plan compiles a topology for links of this machine, and shows the steps in the order in which they are run: the plugin
and the version of CNI that it is called with, the interface and where its name comes from, whether it is given the
results of the steps before it, and its configuration as far as it is known: templates of {{ device }} are rendered, those
of other steps, pod, claim and node are rendered when the step is run.

Nothing is changed. Plugins are only asked for their versions.`,
		Example: `  netdra chain plan topology.yaml --device uplink=eth1
  netdra chain plan topologies.yaml --name bonded --device a=0000:3b:02.1 --device b=0000:3b:02.2 -o yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			flags.file = args[0]
			if err := checkForm(flags.form); err != nil {
				return err
			}
			shown, err := flags.plan(cmd, &on, to)
			if err != nil {
				return err
			}
			if flags.form != formText {
				return printResult(to.out, flags.form, shown)
			}
			shown.print(newPrinter(to.out))
			return nil
		},
	}
	flags.addTo(cmd)
	return cmd
}

// plannedChain is the result of plan.
type plannedChain struct {
	Topology      string        `json:"topology"`
	DeviceClasses []string      `json:"deviceClasses"`
	Steps         []plannedStep `json:"steps"`
}

type plannedStep struct {
	Name     string   `json:"name"`
	Instance int      `json:"instance"`
	Type     string   `json:"type"`
	After    []string `json:"after,omitempty"`
	Plugin   string   `json:"plugin"`
	// CNIVersion is what the plugin is called with.
	CNIVersion string `json:"cniVersion"`
	Network    string `json:"network"`
	// Interface is empty while its name depends on earlier steps; InterfaceFrom says where the name comes from.
	Interface     string `json:"interface,omitempty"`
	InterfaceFrom string `json:"interfaceFrom"`
	// Makes is true for a plugin that makes the interface, false for one that works on it.
	Makes      bool            `json:"makes"`
	PrevResult bool            `json:"prevResult"`
	Device     string          `json:"device,omitempty"`
	Exclusive  bool            `json:"exclusive,omitempty"`
	Config     json.RawMessage `json:"config"`
}

func (f *chainFlags) plan(cmd *cobra.Command, on *machine, to console) (*plannedChain, error) {
	topology, schemas, err := f.load(to.in)
	if err != nil {
		return nil, err
	}
	pod, err := podOf(f.pod, "netdra")
	if err != nil {
		return nil, err
	}
	var taken []cnichain.Link
	if f.netns != "" {
		path, err := on.findNamespace(f.netns)
		if err != nil {
			return nil, err
		}
		if taken, err = on.host.Links(path); err != nil {
			return nil, err
		}
	}
	devices, err := on.bind(cmd.Context(), topology, schemas, &f.deviceFlags)
	if err != nil {
		return nil, err
	}
	runner := executor.New(executor.Options{Exec: on.plugins(""), Host: on.host, Dirs: f.directories()})
	plan, err := f.compile(cmd.Context(), on, runner, topology, schemas, pod, devices)
	if err != nil {
		return nil, err
	}
	named := executor.NewAttachment("netdra", pod, []cnichain.Plan{*plan})
	if err := executor.AssignNames(named, taken); err != nil {
		return nil, err
	}
	return show(topology, named)
}

// show makes the result of an attachment that has names and was never run.
func show(topology *v1alpha1.NetworkTopology, named *executor.Attachment) (*plannedChain, error) {
	chain := &plannedChain{Topology: topology.Name, DeviceClasses: classes(topology)}
	for i := range named.Steps {
		record := &named.Steps[i]
		step := &record.Step
		config, err := cnichain.Preview(step)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", record.Title(), err)
		}
		planned := plannedStep{
			Name: step.Name, Instance: step.Instance, Type: step.Type, Plugin: step.Path, CNIVersion: step.CNIVersion, Network: step.Network,
			Interface: record.IfName, InterfaceFrom: nameSource(&topology.Spec.Steps[i%len(topology.Spec.Steps)], named, record),
			Makes: step.Makes, PrevResult: step.PrevResult, Config: config,
		}
		for _, parent := range step.DependsOn {
			planned.After = append(planned.After, named.Steps[parent].Step.Name)
		}
		if step.Device != nil {
			planned.Device, planned.Exclusive = step.Device.Name, step.Device.Exclusive
		}
		chain.Steps = append(chain.Steps, planned)
	}
	return chain, nil
}

// nameSource says why an interface is called as it is.
func nameSource(step *v1alpha1.Step, named *executor.Attachment, record *executor.StepRecord) string {
	switch wanted := record.Step.IfName; {
	case wanted != "" && step.IfName != "" && record.IfName == "":
		return "ifName " + wanted
	case step.IfName != "":
		return "ifName"
	case wanted != "" && record.IfName == "":
		return "the configuration's name " + wanted
	case wanted != "":
		return "the configuration's name"
	case !record.Step.Makes && len(record.Step.DependsOn) > 0:
		return "that of " + named.Steps[record.Step.DependsOn[0]].Step.Name
	}
	return "the next free name"
}

func (c *plannedChain) print(out *printer) {
	out.say("Topology %s; a claim asks for deviceClassName %s", c.Topology, strings.Join(c.DeviceClasses, " and "))
	for i := range c.Steps {
		c.Steps[i].print(out, i+1)
	}
}

func (s *plannedStep) print(out *printer, number int) {
	out.say("\n%d. %s (%s)", number, titleOf(s.Name, s.Instance), s.Type)
	out.say("   plugin      %s, called with CNI %s", s.Plugin, s.CNIVersion)
	if s.Device != "" {
		use := "shared: it stays on the machine"
		if s.Exclusive {
			use = "exclusive: it must be as before at the end"
		}
		out.say("   device      %s, %s", s.Device, use)
	}
	if len(s.After) > 0 {
		out.say("   after       %s", strings.Join(s.After, ", "))
	}
	verb := "works on"
	if s.Makes {
		verb = "makes"
	}
	out.say("   interface   %s %s (%s)", verb, orDefault(s.Interface, "one that is named when the step is run"), s.InterfaceFrom)
	out.say("   network     %s", s.Network)
	previous := "no"
	if s.PrevResult {
		previous = "yes, the results of " + strings.Join(s.After, ", ")
	}
	out.say("   prevResult  %s", previous)
	config, err := yaml.JSONToYAML(s.Config)
	if err != nil {
		config = s.Config
	}
	out.say("   config\n%s", indent(string(config), 5))
}

// titleOf tells the instances of a step apart.
func titleOf(step string, instance int) string {
	if instance == 0 {
		return step
	}
	return fmt.Sprintf("%s[%d]", step, instance)
}
