package handlers

import (
	"errors"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/slotgate/slotgate/openapi"
	"github.com/slotgate/slotgate/store"
)

// registerPublic adds what needs no key: the contract, its pages, the explanations of errors and, where configured, readiness and the
// key set of tokens.
func (a *API) registerPublic(public gin.IRouter) {
	public.GET("/openapi.yaml", gin.WrapH(a.site.YAML()))
	public.GET("/openapi.json", gin.WrapH(a.site.JSON()))
	public.GET("/docs", gin.WrapH(a.site.Docs()))
	public.GET("/docs/reference", gin.WrapH(a.site.Reference()))
	public.GET("/docs/:asset", page(a.site.Asset, "asset"))
	public.GET("/problems/:code", page(a.site.Problem, "code"))
	if a.tokens != nil {
		public.GET("/.well-known/jwks.json", a.jwks)
	}
	if a.ready != nil {
		public.GET("/readyz", a.readyz)
	}
}

// page serves one of several pages by the name in the path.
func page(find func(name string) (http.Handler, bool), param string) gin.HandlerFunc {
	return func(c *gin.Context) {
		h, ok := find(c.Param(param))
		if !ok {
			report(c, store.NewError(store.CodeNotFound, "there is no such page"))
			return
		}
		h.ServeHTTP(c.Writer, c.Request)
	}
}

// readyz is GET /readyz, for load balancers.
func (a *API) readyz(c *gin.Context) {
	if err := a.ready(c.Request.Context()); err != nil {
		e, ok := errors.AsType[*store.Error](err)
		if !ok {
			e = store.NewError(store.CodeClusterDown, err.Error())
		}
		report(c, e)
		return
	}
	j := newReply(c.Writer).raw(`{"ready":true}`)
	j.send(new(fields))
	j.release()
}

// problems is the table of codes as the pages want it.
func problems() []openapi.Problem {
	codes := store.Codes()
	list := make([]openapi.Problem, len(codes))
	for i, code := range codes {
		list[i] = openapi.Problem{
			Code: string(code), Status: code.Status(), Title: code.Title(), Explanation: code.Explanation(), Retryable: code.Retryable(),
		}
	}
	return list
}
