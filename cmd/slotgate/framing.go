package main

import "net/http"

// closeAfterDoubtfulFraming ends the connection after a request of whose end a proxy in front may think otherwise. net/http takes
// Transfer-Encoding where there is a Content-Length too, ignores it in HTTP/1.0, and shows handlers neither; so what one program takes
// for the body is the next request to the other, a request of somebody else's choice. With the connection ended after the first answer
// there is no next one (RFC 9112, 6.1 and 6.3 ask for that). Hence chunked bodies and HTTP/1.0 cost a connection each; clients of a
// gateway know the length of what they send, and load balancers speak HTTP/1.1.
func closeAfterDoubtfulFraming(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 && (r.ProtoMinor == 0 || len(r.TransferEncoding) > 0) {
			w.Header()["Connection"] = closeConnection
		}
		next.ServeHTTP(w, r)
	})
}

// closeConnection is shared by all responses: nothing writes into a header's slice in place.
var closeConnection = []string{"close"}
