// Package clusterwide shows what the drivers of several nodes answer: as a list, and as one page for the cluster.
//
// The rule of this package: it asks nodes only through [remote], for the JSON of commands of netdra.
package clusterwide
