// Package faults is the suite of `make faults`: it breaks a real Redis Cluster, and the way to it, under a real gateway and real clients, and
// compares what the clients were told of every write with what is stored in the end. It promises that counts are asserted (writes lost,
// applied twice, labelled wrongly; replies crossed) and that times are only reported: they belong to the machine, and the README's table says
// to which. It is made of tests, which skip unless -faults=ci or -faults=long is given.
package faults
