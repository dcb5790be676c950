// Package clusterwide shows what the drivers of several nodes answer: as a list, and as one page for the cluster.
//
// The rule of this package: it asks nodes only through [remote], for the JSON of commands of netdra.
//
// What a node answers is decoded into the types of the command that runs there. So these types are an interface between
// versions of netdra: fields may be added, and must not change their meaning.
package clusterwide
