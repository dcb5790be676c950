package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Condition types of an AddressRange, beside Accepted.
const (
	// ConditionBlocksAssigned is true when every node has as many blocks as it needs.
	ConditionBlocksAssigned = "BlocksAssigned"
)

// FinalizerBlocks keeps an AddressRange while nodes have blocks of it: another of the same name would give away their
// addresses a second time.
const FinalizerBlocks = "networking.dra.io/blocks"

// AddressRange is a set of addresses of one network, which nodes share: the controller divides it into numbered blocks
// of equal size and gives each node one, and another before the node has none left. Steps of topologies name the range,
// and their IPAM plugin gives pods addresses of the blocks of its node, without a request to the API server.
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

	// spec says which addresses there are, and which nodes get some.
	Spec AddressRangeSpec `json:"spec"`
	// status is what the controller has given.
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

// AddressRangeSpec says which addresses there are, and which nodes get some.
// +kubebuilder:validation:XValidation:rule="self.blockSize == oldSelf.blockSize",message="blockSize cannot change, since nodes have blocks of it: make another range"
// +kubebuilder:validation:XValidation:rule="size(self.cidrs) == size(oldSelf.cidrs) && self.cidrs.all(i, c, cidr(c).ip() == cidr(oldSelf.cidrs[i]).ip() && cidr(c).prefixLength() <= cidr(oldSelf.cidrs[i]).prefixLength())",message="cidrs cannot change but for becoming larger from the same first address, since nodes have blocks of them: make another range"
type AddressRangeSpec struct {
	// cidrs are the networks of the addresses: one of IPv4, one of IPv6, or one of each, of which pods then get an
	// address each. Pods have the prefix length of the CIDR. Its first and last address are never given, and neither is
	// the second, which gateways have by convention. A CIDR can grow from the same first address later.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self.all(c, isCIDR(c) && cidr(c) == cidr(c).masked())",message="each must be a network such as 10.20.0.0/16 or fd00:20::/64, without bits after its prefix"
	// +kubebuilder:validation:XValidation:rule="!self.all(c, isCIDR(c)) || size(self) < 2 || cidr(self[0]).ip().family() != cidr(self[1]).ip().family()",message="two CIDRs must be of different families: one of IPv4 and one of IPv6"
	// +listType=atomic
	CIDRs []string `json:"cidrs"`
	// blockSize is how many addresses of each CIDR a block has. A node has room for as many pods with an address of the
	// range as it has addresses; it gets another block before its last ones are used up.
	// +kubebuilder:validation:Enum=4;8;16;32;64;128;256;512;1024;2048;4096
	// +kubebuilder:default=64
	// +optional
	BlockSize int32 `json:"blockSize,omitempty"`
	// exclude are addresses and networks that are never given, for example those of routers. One that is added while a
	// pod has it stays the pod's. What is added counts for claims that are prepared afterwards: a pod that gets another
	// sandbox, after a reboot for example, may be given what was not excluded when its claim was prepared.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self.all(e, isIP(e) || (isCIDR(e) && cidr(e) == cidr(e).masked()))",message="each must be an address or a network, without bits after its prefix"
	// +listType=set
	// +optional
	Exclude []string `json:"exclude,omitempty"`
	// nodeSelector selects, by labels, the nodes that get blocks. A node that has some keeps them whatever its labels
	// become. Default: all nodes.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// returnDelay is how long the blocks of a node that is gone are kept from others: pods may still run on a machine
	// whose Node object was deleted. It should be longer than it takes to be sure that the machine is off.
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="must be at least 1m"
	// +optional
	ReturnDelay *metav1.Duration `json:"returnDelay,omitempty"`
}

// AddressRangeStatus is what the controller has given.
type AddressRangeStatus struct {
	// conditions has Accepted and BlocksAssigned.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// blocks is how many blocks there are.
	// +optional
	Blocks int32 `json:"blocks,omitempty"`
	// given is how many of them belong to nodes, also to nodes that are gone.
	// +optional
	Given int32 `json:"given,omitempty"`
	// returning is how many of those are kept from others because their node is gone, or the range.
	// +optional
	Returning int32 `json:"returning,omitempty"`
}

// AddressBlock is one block of an AddressRange that belongs to a node. The controller makes and deletes it. Its name is
// that of the range and the number of the block, so that no block can belong to two nodes.
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

	// spec says which addresses a node has.
	Spec AddressBlockSpec `json:"spec"`
	// status says whether the node still has them.
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

// AddressBlockSpec says which addresses a node has.
// +kubebuilder:validation:XValidation:rule="self.addressRange == oldSelf.addressRange && self.index == oldSelf.index && self.nodeName == oldSelf.nodeName && self.nodeUID == oldSelf.nodeUID && self.cidrs == oldSelf.cidrs",message="a block never goes to another node: it is deleted when nobody has its addresses"
type AddressBlockSpec struct {
	// addressRange is the name of the range.
	// +kubebuilder:validation:MaxLength=63
	AddressRange string `json:"addressRange"`
	// index is the number of the block in the range, from 0.
	// +kubebuilder:validation:Minimum=0
	Index int32 `json:"index"`
	// nodeName is the node that has the block.
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName"`
	// nodeUID is the UID of its Node object: a node of the same name that registers later is another one.
	NodeUID types.UID `json:"nodeUID"`
	// cidrs are the addresses, in the order of the range's cidrs.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=43
	// +listType=atomic
	CIDRs []string `json:"cidrs"`
	// networks are the range's cidrs, whose prefix lengths pods get.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=43
	// +listType=atomic
	Networks []string `json:"networks"`
	// exclude is what the range excludes of the block.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=43
	// +listType=atomic
	Exclude []string `json:"exclude,omitempty"`
}

// AddressBlockStatus says whether the node still has the block.
type AddressBlockStatus struct {
	// releasedAt is when the controller found that the node is gone, or the range. New pods get no address of the block
	// any more, and the block is deleted after the range's returnDelay, unless a claim has an address of it.
	// +optional
	ReleasedAt *metav1.Time `json:"releasedAt,omitempty"`
}
