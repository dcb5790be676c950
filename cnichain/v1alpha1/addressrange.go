package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Condition types of an AddressRange, in addition to Accepted.
const (
	// ConditionBlocksAssigned is true when every node has as many blocks as it needs.
	ConditionBlocksAssigned = "BlocksAssigned"
)

// FinalizerBlocks prevents the deletion of an AddressRange while nodes have blocks from it: a new range with the same
// name would assign their addresses a second time.
const FinalizerBlocks = "networking.dra.io/blocks"

// AddressRange is a set of addresses of one network, which nodes share: the controller divides it into numbered blocks
// of equal size and assigns one to each node, and another one before the node runs out of addresses. Steps of
// topologies name the range, and their IPAM plugin assigns addresses of the node's blocks to pods, without a request to
// the API server.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=arange
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="CIDRs",type=string,JSONPath=`.spec.cidrs`
// +kubebuilder:printcolumn:name="Blocks",type=integer,JSONPath=`.status.blocks`
// +kubebuilder:printcolumn:name="Given",type=integer,JSONPath=`.status.given`
// +kubebuilder:printcolumn:name="Returning",type=integer,JSONPath=`.status.returning`
// +kubebuilder:printcolumn:name="Assigned",type=string,JSONPath=`.status.conditions[?(@.type=="BlocksAssigned")].status`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="BlocksAssigned")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name of a range has at most 63 characters"
type AddressRange struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the addresses of the range and the nodes that get blocks.
	Spec AddressRangeSpec `json:"spec"`
	// status is reported by the controller.
	// +optional
	Status AddressRangeStatus `json:"status,omitempty"`
}

// AddressRangeList is a list of ranges.
// +kubebuilder:object:root=true
type AddressRangeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AddressRange `json:"items"`
}

// AddressRangeSpec is the addresses of a range and the nodes that get blocks of it.
// +kubebuilder:validation:XValidation:rule="self.blockSize == oldSelf.blockSize",message="blockSize cannot change, since nodes have blocks of it: make another range"
// +kubebuilder:validation:XValidation:rule="size(self.cidrs) == size(oldSelf.cidrs) && self.cidrs.all(i, c, cidr(c).ip() == cidr(oldSelf.cidrs[i]).ip() && cidr(c).prefixLength() <= cidr(oldSelf.cidrs[i]).prefixLength())",message="cidrs cannot change but for becoming larger from the same first address, since nodes have blocks of them: make another range"
type AddressRangeSpec struct {
	// cidrs are the networks of the addresses: one IPv4 network, one IPv6 network, or one of each. Pods get one address
	// of each, with the prefix length of the CIDR. The first and last address are never assigned, and neither is the
	// second, which is the gateway by convention. A CIDR can be extended later if its first address stays the same.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self.all(c, isCIDR(c) && cidr(c) == cidr(c).masked())",message="each must be a network such as 10.20.0.0/16 or fd00:20::/64, without bits after its prefix"
	// +kubebuilder:validation:XValidation:rule="!self.all(c, isCIDR(c)) || size(self) < 2 || cidr(self[0]).ip().family() != cidr(self[1]).ip().family()",message="two CIDRs must be of different families: one of IPv4 and one of IPv6"
	// +listType=atomic
	CIDRs []string `json:"cidrs"`
	// blockSize is the number of addresses of each CIDR in a block. A node can run as many pods with an address of the
	// range as its blocks have addresses; it gets another block before the last addresses are used.
	// +kubebuilder:validation:Enum=4;8;16;32;64;128;256;512;1024;2048;4096
	// +kubebuilder:default=64
	// +optional
	BlockSize int32 `json:"blockSize,omitempty"`
	// exclude are addresses and networks that are never assigned, for example those of routers. A pod keeps an address
	// that is excluded later. An exclusion applies to claims that are prepared after it was added: a pod that gets a
	// new sandbox, for example after a reboot, may get an address that was not excluded when its claim was prepared.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self.all(e, isIP(e) || (isCIDR(e) && cidr(e) == cidr(e).masked()))",message="each must be an address or a network, without bits after its prefix"
	// +listType=set
	// +optional
	Exclude []string `json:"exclude,omitempty"`
	// nodeSelector selects, by labels, the nodes that get blocks. A node keeps its blocks when its labels change.
	// Default: all nodes.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// returnDelay is the time for which the blocks of a deleted node are not assigned to other nodes, because pods may
	// still run on a machine whose Node object was deleted. Choose a time after which the machine is certainly off.
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="must be at least 1m"
	// +optional
	ReturnDelay *metav1.Duration `json:"returnDelay,omitempty"`
}

// AddressRangeStatus is the state that the controller reports.
type AddressRangeStatus struct {
	// conditions has Accepted and BlocksAssigned.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// blocks is the number of blocks in the range.
	// +optional
	Blocks int32 `json:"blocks,omitempty"`
	// given is the number of blocks that are assigned to nodes, including deleted nodes.
	// +optional
	Given int32 `json:"given,omitempty"`
	// returning is the number of those blocks that wait for returnDelay because their node or range was deleted.
	// +optional
	Returning int32 `json:"returning,omitempty"`
}

// AddressBlock is one block of an AddressRange that belongs to a node. The controller creates and deletes it. Its name
// consists of the range's name and the number of the block, so that no block can belong to two nodes.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ablock
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Range",type=string,JSONPath=`.spec.addressRange`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="CIDRs",type=string,JSONPath=`.spec.cidrs`
// +kubebuilder:printcolumn:name="ReleasedAt",type=date,JSONPath=`.status.releasedAt`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AddressBlock struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the addresses that are assigned to the node.
	Spec AddressBlockSpec `json:"spec"`
	// status reports whether the node still has the block.
	// +optional
	Status AddressBlockStatus `json:"status,omitempty"`
}

// AddressBlockList is a list of blocks.
// +kubebuilder:object:root=true
type AddressBlockList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AddressBlock `json:"items"`
}

// AddressBlockSpec is the addresses that are assigned to a node.
// +kubebuilder:validation:XValidation:rule="self.addressRange == oldSelf.addressRange && self.index == oldSelf.index && self.nodeName == oldSelf.nodeName && self.nodeUID == oldSelf.nodeUID && self.cidrs == oldSelf.cidrs",message="a block is never reassigned to another node: it is deleted when none of its addresses is in use"
type AddressBlockSpec struct {
	// addressRange is the name of the range.
	// +kubebuilder:validation:MaxLength=63
	AddressRange string `json:"addressRange"`
	// index is the number of the block in the range, from 0.
	// +kubebuilder:validation:Minimum=0
	Index int32 `json:"index"`
	// nodeName is the node that the block is assigned to.
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName"`
	// nodeUID is the UID of the Node object: a node that registers later under the same name is another node.
	NodeUID types.UID `json:"nodeUID"`
	// cidrs are the addresses, in the order of the range's cidrs.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=43
	// +listType=atomic
	CIDRs []string `json:"cidrs"`
	// networks are the range's cidrs, whose prefix lengths pods use.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=43
	// +listType=atomic
	Networks []string `json:"networks"`
	// exclude is the part of the range's exclude that is in the block.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=43
	// +listType=atomic
	Exclude []string `json:"exclude,omitempty"`
}

// AddressBlockStatus reports whether the node still has the block.
type AddressBlockStatus struct {
	// releasedAt is the time at which the controller found that the node or the range no longer exists. New pods get no
	// address of the block, and the block is deleted after the range's returnDelay, unless a claim still uses one of
	// its addresses.
	// +optional
	ReleasedAt *metav1.Time `json:"releasedAt,omitempty"`
}
