//! Defines all routes of the server. No path of a request is looked up on disk.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY,
    RETRY_AFTER, SET_COOKIE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use headspace_exporters::encode::prometheus::Form;
use tokio::sync::Semaphore;

use super::access::{Access, Decision};
use super::events::events;
use super::live::Live;
use super::search_page::{self, Tuning};
use crate::output;
use crate::page::ASSETS;

/// Maximum number of pages open at a time: half of all connections.
pub(super) const LISTENERS: usize = super::listen::CONNECTIONS / 2;

/// The content security policy of the page: only resources of this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const JSON: &str = "application/json";

#[derive(Clone)]
struct Shared {
    live: Arc<Live>,
    listeners: Arc<Semaphore>,
}

/// The routes, for clients that `access` permits.
pub(super) fn router(live: Arc<Live>, tuning: Option<Tuning>, access: Access) -> Router {
    let shared = Shared {
        live,
        listeners: Arc::new(Semaphore::new(LISTENERS)),
    };
    let mut router = Router::new()
        .route("/", get(page))
        .route("/events", get(listen))
        .route("/api/page", get(page_data))
        .route("/api/summary", get(summary))
        .route("/metrics", get(metrics));
    for (path, content_type, content) in ASSETS {
        let asset = ([(CONTENT_TYPE, *content_type)], *content);
        router = router.route(path, get(move || async move { asset }));
    }
    if let Some(tuning) = tuning {
        router = with_tuning(router, &tuning);
    }
    router
        .fallback(|| async { (StatusCode::NOT_FOUND, "nothing is here\n") })
        .with_state(shared)
        .layer(middleware::from_fn_with_state(Arc::new(access), check))
        .layer(middleware::map_response(guarded))
}

/// The routes of a search's page.
fn with_tuning(mut router: Router<Shared>, tuning: &Tuning) -> Router<Shared> {
    let shown = tuning.clone();
    let page = get(move || {
        let page = shown.page().map(Html);
        async move { page.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR) }
    });
    router = router.route(search_page::PAGE, page);
    for (name, content_type) in search_page::FILES {
        let kept = tuning.clone();
        let file = get(move || {
            let read = kept.read(name);
            async move {
                let headers = [
                    (CONTENT_TYPE, content_type),
                    (CONTENT_SECURITY_POLICY, search_page::PICTURE_POLICY),
                ];
                read.map(|content| (headers, content))
                    .map_err(|_| (StatusCode::NOT_FOUND, "not there yet\n"))
            }
        });
        router = router.route(&format!("{}/{name}", search_page::PAGE), file);
    }
    router
}

/// Permits a request, or answers with the reason for its refusal.
async fn check(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    match access.decide(request.method(), request.uri(), request.headers()) {
        Decision::Allowed => next.run(request).await,
        Decision::NotReading => {
            let code = StatusCode::METHOD_NOT_ALLOWED;
            (code, [(ALLOW, "GET, HEAD")], "only GET and HEAD\n").into_response()
        }
        Decision::OtherHost => {
            let words = "The host name in this request does not belong to this server. Open the \
                         address that `headspace serve` printed, or start it with `--host NAME`.\n";
            (StatusCode::MISDIRECTED_REQUEST, words).into_response()
        }
        Decision::NoToken => {
            let words = "a token is needed: `Authorization: Bearer TOKEN`, or open /?token=TOKEN \
                         once\n";
            let ask = [(WWW_AUTHENTICATE, "Bearer")];
            (StatusCode::UNAUTHORIZED, ask, words).into_response()
        }
        Decision::Enter { cookie, location } => {
            let headers = [(SET_COOKIE, cookie), (LOCATION, location)];
            (StatusCode::SEE_OTHER, headers).into_response()
        }
    }
}

/// Adds the headers that every response has.
async fn guarded(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let own_site = HeaderName::from_static("cross-origin-resource-policy");
    for (name, value) in [
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
        (own_site, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // A picture has its own policy.
    headers
        .entry(CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static(POLICY));
    response
}

async fn page(State(shared): State<Shared>) -> Html<String> {
    Html(shared.live.page().served())
}

async fn page_data(State(shared): State<Shared>) -> Response {
    as_json(serde_json::to_string(&shared.live.page()))
}

async fn summary(State(shared): State<Shared>) -> Response {
    match shared.live.summary() {
        Some(record) => as_json(output::json(&record)),
        None => (StatusCode::NOT_FOUND, "no summary yet\n").into_response(),
    }
}

async fn metrics(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let form = Form::accepted(accept.unwrap_or_default());
    let text = shared.live.metrics(form);
    ([(CONTENT_TYPE, form.content_type())], text).into_response()
}

async fn listen(State(shared): State<Shared>) -> Response {
    if let Ok(place) = shared.listeners.try_acquire_owned() {
        return events(shared.live, place).into_response();
    }
    let later = [(RETRY_AFTER, "10")];
    let words = "too many pages are open\n";
    (StatusCode::SERVICE_UNAVAILABLE, later, words).into_response()
}

fn as_json(text: serde_json::Result<String>) -> Response {
    match text {
        Ok(text) => ([(CONTENT_TYPE, JSON)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
