package middleware_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/slotgate/slotgate/middleware"
)

func TestLiveSettingsHoldForTheNextRequest(t *testing.T) {
	live := &middleware.Live{}
	g := start(t, func(c *middleware.Config) {
		c.Live = live
		c.Deadline = middleware.DeadlineConfig{Default: time.Hour}
	}, func(_, v1 gin.IRouter) {
		v1.GET("/left", func(c *gin.Context) {
			end, _ := c.Request.Context().Deadline()
			c.String(http.StatusOK, "%d", int(time.Until(end).Minutes()))
		})
	})
	minutes := func() int {
		n, err := strconv.Atoi(g.get(t, "/v1/left").body)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := minutes(); n != 59 {
		t.Errorf("%d minutes are left of an hour", n)
	}
	live.Set(middleware.Settings{Deadline: middleware.DeadlineConfig{Default: 10 * time.Minute}})
	if n := minutes(); n != 9 {
		t.Errorf("%d minutes are left of ten", n)
	}
}

func TestLiveSettingsOfTheLog(t *testing.T) {
	var b bytes.Buffer
	live := middleware.NewLive(middleware.Settings{})
	sink := middleware.Log(slog.New(slog.NewJSONHandler(&b, nil)), live)
	sink(&middleware.Event{Status: 200})
	if b.Len() > 0 {
		t.Errorf("without sampling it wrote %s", b.String())
	}
	live.Set(middleware.Settings{AccessLog: middleware.LogConfig{SampleOneIn: 1}})
	if sink(&middleware.Event{Status: 200}); b.Len() == 0 {
		t.Error("with all of them it wrote nothing")
	}
}

func TestBudgetCanChange(t *testing.T) {
	b := middleware.NewBytesInFlight(10)
	if !b.TryAcquire(8) {
		t.Fatal("8 of 10 are refused")
	}
	b.SetLimit(5)
	if b.TryAcquire(1) || b.Used() != 8 {
		t.Error("more is given than the new budget has")
	}
	b.Release(8)
	if !b.TryAcquire(5) || b.TryAcquire(1) {
		t.Error("the new budget is not what is given")
	}
	if b.SetLimit(0); !b.TryAcquire(1 << 40) {
		t.Error("0 is no limit")
	}
}
