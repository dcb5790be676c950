package vm

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Kind is the purpose of an image.
type Kind int

const (
	// SRIOV images contain the kernel from Debian's stable suite.
	SRIOV Kind = iota
	// RDMA images contain the RDMA tools and the kernel from the backports suite, whose rxe supports network
	// namespaces.
	RDMA
	// OVS images contain the kernel from the stable suite, as well as Open vSwitch and OVN, which are not started
	// automatically.
	OVS
)

// recipe is the version of the procedure that builds images. Increment it with each change to the procedure. It is part
// of an image's name in the cache, so after a change, a new image is created in addition to the old one. The Debian
// package versions are not part of the name, so an image is reused until it is removed manually.
const recipe = "1"

const (
	suite     = "trixie"
	backports = suite + "-backports"
)

// parts are the components of an image.
type parts struct {
	// prefix is the start of the name of the image's cache directory.
	prefix string
	// suites are the Debian suites for the packages, and kernelSuite is the suite for the kernel.
	suites      []string
	kernelSuite string
	// packages are Debian packages, excluding dependencies, which apt adds. They do not include the kernel, because its
	// dependencies would set up a boot loader.
	packages []string
	// kernelPackages are the prefixes of the kernel packages' names. In a package name, the kernel's release follows
	// the prefix.
	kernelPackages []string
	// modules are the kernel modules that machines can load, in addition to earlyModules.
	modules []string
}

// parts returns the components of a kind, as a new value on each call. The kernel loads modules by name on demand.
// Modules that are not listed here are not in the image, even if the kernel package contains them.
func (k Kind) parts() *parts {
	p := &parts{
		prefix: "vm-", suites: []string{suite, suite + "-updates"}, kernelSuite: suite,
		packages: strings.Fields(`qemu-system-x86 bash busybox-static coreutils dash ethtool findutils grep gzip
			iproute2 iptables iputils-ping jq kmod mawk mount nftables pciutils procps sed tar tcpdump util-linux`),
		kernelPackages: []string{"linux-image-"},
		modules: strings.Fields(`igb igbvf vfio-pci vfio_iommu_type1 virtio_net virtio_rng
			8021q bonding bridge br_netfilter dummy ifb ipvlan ipvtap macvlan macvtap openvswitch tun veth vrf vxlan
			nf_tables nft_compat nft_ct nft_chain_nat nft_masq nft_nat nft_limit nft_reject_inet nf_conntrack
			ip_tables ip6_tables iptable_filter iptable_nat xt_conntrack xt_MASQUERADE xt_comment xt_mark xt_addrtype
			xt_nat xt_tcpudp sch_ingress sch_tbf sch_htb sch_fq_codel cls_u32 cls_matchall act_mirred act_police
			act_vlan xfrm_user inet_diag af_packet_diag`),
	}
	switch k {
	case RDMA:
		p.prefix, p.kernelSuite, p.suites = "vm-rdma-", backports, append(p.suites, backports)
		p.packages = append(p.packages, strings.Fields("ibverbs-providers ibverbs-utils perftest rdmacm-utils")...)
		p.kernelPackages = []string{"linux-binary-", "linux-modules-", "linux-base-"}
		p.modules = append(p.modules, rdmaModules()...)
	case OVS:
		p.prefix = "vm-ovs-"
		p.packages = append(p.packages, strings.Fields("openvswitch-switch ovn-central ovn-host")...)
		// When libcrc32c, a dependency of Open vSwitch, is loaded, it requests an algorithm by name.
		p.modules = append(p.modules, strings.Fields("crc32c_generic vport_geneve")...)
	}
	return p
}

// rdmaModules returns the RDMA modules, not including their dependencies.
func rdmaModules() []string {
	return strings.Fields("ib_core ib_uverbs ib_umad rdma_ucm rdma_cm ib_cm iw_cm rdma_rxe")
}

// earlyModules returns the modules that are required to mount the root file system. vminit loads them from the initial
// file system without modprobe, because modprobe is in the root file system.
func earlyModules() []string { return []string{"9p", "9pnet_virtio", "overlay"} }

// folder returns the name of the image's cache directory, which includes a hash of the image's components.
func (p *parts) folder() string {
	all := []string{recipe, p.kernelSuite, strings.Join(p.packages, " "), strings.Join(earlyModules(), " "),
		strings.Join(p.modules, " ")}
	sum := sha256.Sum256([]byte(strings.Join(all, "\n")))
	return p.prefix + hex.EncodeToString(sum[:])[:16]
}
