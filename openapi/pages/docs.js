// Starts Swagger UI on the document beside the page. It is a file of its own because the page's policy allows no inline script.
"use strict";

window.addEventListener("load", function () {
  SwaggerUIBundle({
    url: "openapi.json",
    dom_id: "#operations",
    presets: [SwaggerUIBundle.presets.apis],
    layout: "BaseLayout",
    deepLinking: true,
    docExpansion: "list",
    filter: true,
    tryItOutEnabled: true,
    displayOperationId: true,
    displayRequestDuration: true,
    defaultModelsExpandDepth: 0,
    showExtensions: true,
    validatorUrl: null, // otherwise a page on a public host asks validator.swagger.io
  });
});
