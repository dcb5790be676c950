package doctor

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

func pathChecks() []check {
	return []check{
		{group: groupPaths, name: "kubelet-directory", fine: "the driver's directories are below kubelet's",
			needs: needsKubelet, inspect: checkKubeletDir},
		{group: groupPaths, name: "directories", fine: "the driver's directories can be written to and have space",
			inspect: checkDisks},
		{group: groupPaths, name: "cni-plugins", fine: "every CNI plugin that a topology names is installed",
			needs: needsCaches, inspect: checkPlugins},
		{group: groupPaths, name: "plugin-folders",
			fine: "the driver's pod has the folders that CNI plugins of topologies need", needs: needsPod,
			inspect: checkPluginFolders},
		{group: groupPaths, name: "link-types",
			fine: "the kernel makes every type of link that CNI plugins of topologies need", needs: needsLinkTypes,
			inspect: checkLinkTypes},
	}
}

func needsKubelet(input *Input) string {
	if input.Kubelet == nil {
		return "no process is called kubelet"
	}
	return ""
}

func checkKubeletDir(input *Input) []Finding {
	root := input.Kubelet.RootDir
	var wrong []string
	for _, dir := range []struct{ path, wanted, flag string }{
		{filepath.Dir(input.Settings.PluginDir), filepath.Join(root, "plugins"), "--plugin-dir"},
		{input.Settings.RegistrarDir, filepath.Join(root, "plugins_registry"), "--registrar-dir"},
	} {
		if !samePath(dir.path, dir.wanted) {
			wrong = append(wrong, fmt.Sprintf("%s is in %s, and kubelet's is %s", dir.flag, dir.path, dir.wanted))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return []Finding{{
		Level: Fail, What: "the driver does not work in kubelet's directory: " +
			strings.Join(wrong, "; "), Where: "flags of the driver",
		Why: "kubelet does not find the driver, so no claim is prepared", Do: "set these flags, and the volumes of " +
			"the DaemonSet, to what is below kubelet's --root-dir " + root,
	}}
}

// Space below which writing is about to fail.
const (
	leastBytes  = 16 << 20
	leastInodes = 100
)

// checkDisks checks the directories that the driver writes to. Without space in the plugin directory, the journal
// cannot be written, so nothing is attached; a missing log of CNI calls is harmless.
func checkDisks(input *Input) []Finding {
	var found []Finding
	for i := range input.Disks {
		disk := &input.Disks[i]
		finding := Finding{Level: Fail, Where: disk.Path,
			Why: "the driver cannot note what it does, so no claim is prepared and no pod is attached"}
		if samePath(disk.Path, input.Settings.LogDir) {
			finding.Level, finding.Why = Warn, "CNI calls are not logged"
		}
		switch {
		case disk.Missing && input.Driver == nil:
			continue // the driver's pod makes it
		case disk.Missing:
			finding.What, finding.Do = "a directory of the driver does not exist on the node", "find what removes it; "+
				"the driver makes it again within 30 seconds, and /readyz of the driver says why it cannot; if it "+
				"stays missing, mount the path into the driver's pod, and restart that pod"
		case disk.ReadOnly:
			finding.What, finding.Do = "a directory of the driver is read-only", "mount it writable; a disk with "+
				"errors is mounted read-only by the kernel: see dmesg"
		case disk.Free < leastBytes:
			finding.What, finding.Do = fmt.Sprintf("the disk of a directory of the driver is full: %d MiB are free",
				disk.Free>>20), "make space"
		case disk.Inodes < leastInodes:
			finding.What, finding.Do = fmt.Sprintf("the disk of a directory of the driver cannot hold more files: %d "+
				"are free", disk.Inodes), "remove files"
		default:
			continue
		}
		found = append(found, finding)
	}
	return found
}

// checkPlugins compares two views: files of the node, and files in the driver's container. A plugin that only the node
// has is not mounted, or is a link with a target that is not.
func checkPlugins(input *Input) []Finding {
	var found []Finding
	dirs := strings.Join(input.Settings.CNIDirs, ", ")
	for _, name := range sortedKeys(input.Plugins) {
		plugin := input.Plugins[name]
		seen := input.Driver.State.CNIPlugins // nil of a driver that does not say
		if slices.Contains(seen, name) {
			continue
		}
		finding := Finding{Level: Fail, Where: dirs, Why: "claims for " +
			strings.Join(topologiesWith(input, name), ", ") + " are refused on this node"}
		switch {
		case plugin.Path == "" && plugin.Elsewhere != "":
			finding.What = fmt.Sprintf("CNI plugin %s is in %s, where the driver does not look", name, plugin.Elsewhere)
			finding.Do = fmt.Sprintf("give the driver --cni-bin-dir=%s and mount that directory",
				strings.Join(append(slices.Clone(input.Settings.CNIDirs), plugin.Elsewhere), ","))
		case plugin.Path == "":
			finding.What, finding.Do = fmt.Sprintf("CNI plugin %s is not installed",
				name), "install it there, or name an image that has it (cniPlugins.image of the chart)"
			if meant := cnichain.DefaultSchemas().MeantType(name); meant != "" {
				finding.What += fmt.Sprintf(": did you mean %s?", meant)
				finding.Do = fmt.Sprintf("correct the name in %s; if it is right, %s",
					strings.Join(topologiesWith(input, name), ", "), finding.Do)
			}
		case !plugin.Executable:
			finding.What, finding.Where, finding.Do = fmt.Sprintf("CNI plugin %s cannot be run",
				name), plugin.Path, "chmod 755 "+plugin.Path
		case seen != nil:
			finding.What, finding.Where = fmt.Sprintf("CNI plugin %s is on the node, and the driver does not see it",
				name), plugin.Path
			finding.Do = "mount into the driver's pod the directory, and what links in it point to; or name an image " +
				"that has the plugin (cniPlugins.image of the chart)"
		default:
			continue
		}
		found = append(found, finding)
	}
	return found
}

// needsPod is for the driver's container's view of the host.
func needsPod(input *Input) string {
	if missing := needsCaches(input); missing != "" {
		return missing
	}
	wanted := false
	for name := range input.Plugins {
		wanted = wanted || len(input.Plugins[name].HostPaths) > 0
	}
	if wanted && input.Mounts == nil {
		return "the mounts of the driver's container cannot be read"
	}
	return ""
}

// checkPluginFolders compares the directories that plugins need by their schemas with the mounts of the driver's
// container, in which they run. A mount of a parent directory includes its subdirectories.
func checkPluginFolders(input *Input) []Finding {
	var found []Finding
	for _, name := range sortedKeys(input.Plugins) {
		plugin := input.Plugins[name]
		for _, folder := range plugin.Absent {
			if plugin.Path == "" {
				continue // nothing of it is offered on this node
			}
			found = append(found, Finding{
				Level: Fail, Where: folder,
				What: fmt.Sprintf("CNI plugin %s needs %s of the host, which does not exist", name, folder),
				Why:  "pods wait with claims for " + strings.Join(topologiesWith(input, name), ", "),
				Do:   "start on this node what makes it: the service that the plugin belongs to",
			})
		}
		for _, folder := range plugin.HostPaths {
			if slices.ContainsFunc(input.Mounts, func(mount string) bool {
				return mount == folder ||
					strings.HasPrefix(folder, mount+"/")
			}) || slices.Contains(plugin.Absent, folder) {
				continue
			}
			found = append(found, Finding{
				Level: Fail, What: fmt.Sprintf("CNI plugin %s needs %s of the host, which is not in the driver's pod",
					name, folder), Where: folder,
				Why: "pods wait with claims for " + strings.Join(topologiesWith(input, name), ", "),
				Do: fmt.Sprintf("mount it: --set 'node.extraMounts[0].hostPath=%s' of the chart, beside what is set "+
					"there", folder),
			})
		}
	}
	return found
}

func needsLinkTypes(input *Input) string {
	if missing := needsCaches(input); missing != "" {
		return missing
	}
	return input.LinkTypesUnknown
}

// checkLinkTypes has one finding for each type, since each has its own module.
func checkLinkTypes(input *Input) []Finding {
	var found []Finding
	for _, linkType := range input.MissingLinkTypes {
		var plugins, topologies []string
		for _, name := range sortedKeys(input.Plugins) {
			if slices.Contains(input.Plugins[name].LinkTypes, linkType) {
				plugins = append(plugins, name)
				topologies = append(topologies, topologiesWith(input, name)...)
			}
		}
		slices.Sort(topologies)
		found = append(found, Finding{
			Level: Fail, Where: strings.TrimSpace("kernel " + input.Driver.State.Versions.Kernel),
			What: fmt.Sprintf("the kernel makes no links of type %s, which %s needs", linkType,
				"CNI plugin "+strings.Join(plugins, ", ")),
			Why: "no device of the node is offered for it, and claims are refused for " +
				strings.Join(slices.Compact(topologies), ", "),
			Do: cnichain.InstallLinkType(linkType),
		})
	}
	return found
}

// topologiesWith returns the topologies that run a plugin.
func topologiesWith(input *Input, plugin string) []string {
	var names []string
	for i := range input.Driver.State.Topologies {
		if topology := &input.Driver.State.Topologies[i]; slices.Contains(topology.Plugins, plugin) {
			names = append(names, "topology "+topology.Name)
		}
	}
	return names
}
