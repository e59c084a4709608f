use std::env;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use http::Extensions;
use plant_store_client::apis::Error;
use plant_store_client::apis::configuration::Configuration;
use plant_store_client::apis::plants_api::{create_plant, delete_plant, list_plants};
use plant_store_client::models::{self, NewPlant};
use reqwest::{Client, Request, Response};
use reqwest_middleware::{ClientBuilder, Middleware, Next, Result};

/// Keeps the cursor of the last response, since the generated functions return no headers.
#[derive(Clone, Default)]
struct LastCursor(Arc<Mutex<Option<String>>>);

#[async_trait]
impl Middleware for LastCursor {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let response = next.run(request, extensions).await?;
        let link = response.headers().get("Link").and_then(|value| value.to_str().ok());
        *self.0.lock().unwrap() = link.and_then(cursor_in);
        Ok(response)
    }
}

fn cursor_in(link: &str) -> Option<String> {
    let (_, rest) = link.split_once("cursor=")?;
    rest.split(['&', '>']).next().map(str::to_owned)
}

/// The status and the code of an error response.
fn describe<T: std::fmt::Debug>(error: Error<T>) -> String {
    let Error::ResponseError(response) = error else {
        panic!("{error:?}");
    };
    let body: models::Error = serde_json::from_str(&response.content).unwrap();
    format!("error {} {}", response.status.as_u16(), body.error)
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = env::args().collect();
    let last_cursor = LastCursor::default();
    let configuration = Configuration {
        base_path: arguments[1].clone(),
        bearer_access_token: Some(arguments[2].clone()),
        client: ClientBuilder::new(Client::new()).with(last_cursor.clone()).build(),
        ..Configuration::default()
    };

    let mut fern = NewPlant::new("Fern".to_owned(), 9007199254740993);
    fern.tag = Some("Polypodium".to_owned());
    let alder = NewPlant::new("Black alder".to_owned(), 9223372036854775807);
    for plant in [fern.clone(), alder] {
        let created = create_plant(&configuration, plant, None).await.unwrap();
        let tag = created.tag.as_deref().unwrap_or("no tag");
        println!("created {}, {tag}", created.name);
    }

    let again = create_plant(&configuration, fern, None).await;
    println!("{}", describe(again.unwrap_err()));

    let mut cursor: Option<String> = None;
    loop {
        let page = list_plants(&configuration, Some(1), cursor.as_deref()).await.unwrap();
        for plant in page {
            println!("page {}", plant.name);
        }
        cursor = last_cursor.0.lock().unwrap().take();
        if cursor.is_none() {
            break;
        }
    }

    for id in [9007199254740992, 9007199254740993, 9223372036854775807] {
        match delete_plant(&configuration, id).await {
            Ok(()) => println!("deleted"),
            Err(error) => println!("{}", describe(error)),
        }
    }

    let left = list_plants(&configuration, None, None).await.unwrap();
    println!("left {}", left.len());
}
