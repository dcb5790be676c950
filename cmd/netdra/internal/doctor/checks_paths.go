package doctor

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

func needsKubelet(input *Input) string {
	if input.Kubelet == nil {
		return "no kubelet process was found"
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
			wrong = append(wrong, fmt.Sprintf("%s is in %s, but the kubelet uses %s", dir.flag, dir.path, dir.wanted))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return []Finding{{
		Level: Fail, What: "the driver does not use the kubelet's directory: " +
			strings.Join(wrong, "; "), Where: "flags of the driver",
		Why: "the kubelet does not find the driver, so no claim can be prepared", Do: "set these flags, and the " +
			"volumes of the DaemonSet, to paths below the kubelet's --root-dir " + root,
	}}
}

// Thresholds for free space. Below these, writes are about to fail.
const (
	leastBytes  = 16 << 20
	leastInodes = 100
)

// checkDisks checks the directories that the driver writes to. It is harmless if the CNI call log is missing.
func checkDisks(input *Input) []Finding {
	var found []Finding
	for i := range input.Disks {
		disk := &input.Disks[i]
		finding := Finding{Level: Fail, Where: disk.Path,
			Why: "the driver cannot write its records, so no claim is prepared and no pod is attached"}
		if samePath(disk.Path, input.Settings.LogDir) {
			finding.Level, finding.Why = Warn, "CNI calls are not logged"
		}
		switch {
		case disk.Missing && input.Driver == nil:
			continue // the driver's pod creates it
		case disk.Missing:
			finding.What, finding.Do = "a directory of the driver does not exist on the node", "find the "+
				"process that removes it; the driver recreates it within 30 seconds, and reports an error at /readyz "+
				"if it cannot; if it stays missing, mount the path into the driver's pod, and restart that pod"
		case disk.ReadOnly:
			finding.What, finding.Do = "a directory of the driver is read-only", "mount it writable; the kernel "+
				"mounts a disk with errors read-only: check dmesg"
		case disk.Free < leastBytes:
			finding.What, finding.Do = fmt.Sprintf("the disk with a directory of the driver is full: %d MiB are free",
				disk.Free>>20), "free disk space"
		case disk.Inodes < leastInodes:
			finding.What, finding.Do = fmt.Sprintf("the disk with a directory of the driver is out of inodes: %d "+
				"are free", disk.Inodes), "remove files"
		default:
			continue
		}
		found = append(found, finding)
	}
	return found
}

// checkPlugins compares the plugin files on the node with those in the driver's container. If a plugin exists only on
// the node, either its directory is not mounted in the container, or the file is a symlink whose target is not mounted.
func checkPlugins(input *Input) []Finding {
	var found []Finding
	dirs := strings.Join(input.Settings.CNIDirs, ", ")
	for _, name := range sortedKeys(input.Plugins) {
		plugin := input.Plugins[name]
		seen := input.Driver.State.CNIPlugins // nil if the driver does not report plugins
		interpreter := input.Driver.State.MissingInterpreters[name]
		if slices.Contains(seen, name) && interpreter == "" {
			continue
		}
		finding := Finding{Level: Fail, Where: dirs, Why: "claims for " +
			strings.Join(topologiesWith(input, name), ", ") + " are rejected on this node"}
		switch {
		case interpreter != "":
			finding.What = fmt.Sprintf("CNI plugin %s is dynamically linked, and the driver's pod does not contain %s", name,
				interpreter)
			finding.Do = "install a statically linked plugin, or use the driver's image with a C library " +
				"(driver-with-tools)"
		case plugin.Path == "" && plugin.Elsewhere != "":
			finding.What = fmt.Sprintf("CNI plugin %s is in %s, which the driver does not search", name,
				plugin.Elsewhere)
			finding.Do = fmt.Sprintf("set --cni-bin-dir=%s of the driver and mount that directory",
				strings.Join(append(slices.Clone(input.Settings.CNIDirs), plugin.Elsewhere), ","))
		case plugin.Path == "":
			finding.What, finding.Do = fmt.Sprintf("CNI plugin %s is not installed",
				name), "install it there, or set an image that contains it (cniPlugins.image of the chart)"
		case !plugin.Executable:
			finding.What, finding.Where, finding.Do = fmt.Sprintf("CNI plugin %s is not executable",
				name), plugin.Path, "chmod 755 "+plugin.Path
		case seen != nil:
			finding.What, finding.Where = fmt.Sprintf("CNI plugin %s is on the node but not in the driver's pod",
				name), plugin.Path
			finding.Do = "mount the directory, and the targets of its symlinks, into the driver's pod; or set an " +
				"image that contains the plugin (cniPlugins.image of the chart)"
		default:
			continue
		}
		found = append(found, finding)
	}
	return found
}

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

// checkPluginFolders compares the host directories required by plugin schemas with the mounts in the driver's
// container, where the plugins run. Mounting a directory also makes its subdirectories available.
func checkPluginFolders(input *Input) []Finding {
	var found []Finding
	for _, name := range sortedKeys(input.Plugins) {
		plugin := input.Plugins[name]
		for _, folder := range plugin.Absent {
			if plugin.Path == "" {
				continue // checkPlugins reports the missing plugin
			}
			found = append(found, Finding{
				Level: Fail, Where: folder,
				What: fmt.Sprintf("CNI plugin %s needs %s on the host, which does not exist", name, folder),
				Why:  "pods with claims for " + strings.Join(topologiesWith(input, name), ", ") + " cannot start",
				Do:   "start the service of the plugin on this node, which creates it",
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
				Level: Fail, What: fmt.Sprintf("CNI plugin %s needs %s on the host, which is not mounted in the "+
					"driver's pod", name, folder), Where: folder,
				Why: "pods with claims for " + strings.Join(topologiesWith(input, name), ", ") + " cannot start",
				Do: fmt.Sprintf("mount it: --set 'node.extraMounts[0].hostPath=%s' of the chart, in addition to the "+
					"existing mounts", folder),
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

// checkLinkTypes returns one finding per link type, since each type has its own kernel module.
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
			What: fmt.Sprintf("the kernel does not support links of type %s, which %s needs", linkType,
				"CNI plugin "+strings.Join(plugins, ", ")),
			Why: "no device of the node is offered for it, and claims are rejected for " +
				strings.Join(slices.Compact(topologies), ", "),
			Do: cnichain.InstallLinkType(linkType),
		})
	}
	return found
}

func topologiesWith(input *Input, plugin string) []string {
	var names []string
	for i := range input.Driver.State.Topologies {
		if topology := &input.Driver.State.Topologies[i]; slices.Contains(topology.Plugins, plugin) {
			names = append(names, "topology "+topology.Name)
		}
	}
	return names
}
