package pool_test

import (
	"testing"

	"github.com/slotgate/slotgate/store/pool"
	"github.com/slotgate/slotgate/store/pool/pooltest"
)

// The vectors of the design. That HTTP leads to the same is tested in handlers.
func TestVectors(t *testing.T) {
	pooltest.Run(t, func(t *testing.T) pooltest.Way { return newBench(t, pool.Definition{Policy: pool.LeastUsed}).way() })
}
