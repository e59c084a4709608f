import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import test.plants.client.ApiClient;
import test.plants.client.ApiException;
import test.plants.client.ApiResponse;
import test.plants.client.api.PlantsApi;
import test.plants.client.model.Error;
import test.plants.client.model.NewPlant;
import test.plants.client.model.Plant;

class Program {
  private static final Pattern NEXT_CURSOR = Pattern.compile("[?&]cursor=([^&>]+)");

  public static void main(String[] args) throws Exception {
    ApiClient client = new ApiClient();
    client.updateBaseUri(args[0]);
    client.setRequestInterceptor(request -> request.header("Authorization", "Bearer " + args[1]));
    PlantsApi api = new PlantsApi(client);

    for (NewPlant plant : List.of(
        new NewPlant().id(9007199254740993L).name("Fern").tag("Polypodium"),
        new NewPlant().id(9223372036854775807L).name("Black alder"))) {
      Plant created = api.createPlant(plant, null);
      String tag = created.getTag() == null ? "no tag" : created.getTag();
      System.out.println("created " + created.getName() + ", " + tag);
    }

    try {
      api.createPlant(new NewPlant().id(9007199254740993L).name("Fern"), null);
    } catch (ApiException error) {
      System.out.println(describe(error));
    }

    String cursor = null;
    do {
      ApiResponse<List<Plant>> page = api.listPlantsWithHttpInfo(1, cursor);
      for (Plant plant : page.getData()) System.out.println("page " + plant.getName());
      String link = page.getHeaders().getOrDefault("Link", List.of("")).get(0);
      Matcher next = NEXT_CURSOR.matcher(link);
      cursor = next.find() ? next.group(1) : null;
    } while (cursor != null);

    for (long id : new long[] {9007199254740992L, 9007199254740993L, 9223372036854775807L}) {
      try {
        api.deletePlant(id);
        System.out.println("deleted");
      } catch (ApiException error) {
        System.out.println(describe(error));
      }
    }

    System.out.println("left " + api.listPlants(null, null).size());
  }

  /** The status and the code of an error response. */
  private static String describe(ApiException error) throws Exception {
    Error body = new ObjectMapper().readValue(error.getResponseBody(), Error.class);
    return "error " + error.getCode() + " " + body.getError();
  }
}
