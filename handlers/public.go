package handlers

import "github.com/gin-gonic/gin"

func (a *API) registerPublic(public gin.IRouter) {}
