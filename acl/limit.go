package acl

// A Limit caps one thing over a period. Limit is the app's total; until limits are shared, each gateway enforces it alone.
type Limit struct {
	ID       string `json:"id" yaml:"id"`
	Per      string `json:"per" yaml:"per"`
	Of       string `json:"of" yaml:"of"`
	Class    string `json:"class,omitempty" yaml:"class,omitempty"`
	Route    string `json:"route,omitempty" yaml:"route,omitempty"`
	Limit    int64  `json:"limit" yaml:"limit"`
	PeriodMS int64  `json:"period_ms" yaml:"period_ms"`
	Burst    int64  `json:"burst,omitempty" yaml:"burst,omitempty"` // 0 means Limit
}
